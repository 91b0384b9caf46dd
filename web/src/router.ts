// Every view is a path, and its filters are in the query: a link that can be sent.
import { useEffect, useState } from "preact/hooks";

const watchers = new Set<() => void>();
const tell = () => watchers.forEach((w) => w());
window.addEventListener("popstate", tell);

export function go(to: string, replace = false): void {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  if (!replace) document.querySelector("main")?.scrollTo(0, 0);
  tell();
}

export function useRoute(): { path: string[]; query: URLSearchParams } {
  const [, draw] = useState(0);
  useEffect(() => {
    const w = () => draw((n) => n + 1);
    watchers.add(w);
    return () => void watchers.delete(w);
  }, []);
  return { path: location.pathname.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(location.search) };
}

// setQuery changes one filter of the view.
export function setQuery(name: string, value: string): void {
  const query = new URLSearchParams(location.search);
  if (value) query.set(name, value);
  else query.delete(name);
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), true);
}

// follow has links of the page change the view without a reload.
export function follow(e: MouseEvent): void {
  if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  const link = (e.target as Element | null)?.closest?.("a[href^='/']");
  if (!link || link.hasAttribute("download") || link.getAttribute("target")) return;
  e.preventDefault();
  go(link.getAttribute("href") ?? "/");
}

export const link = {
  queue: (name: string) => `/queues/${encodeURIComponent(name)}`,
  job: (namespace: string, name: string) => `/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`,
  node: (name: string) => `/nodes/${encodeURIComponent(name)}`,
  card: (node: string, card: string) => `/nodes/${encodeURIComponent(node)}/${encodeURIComponent(card)}`,
};
