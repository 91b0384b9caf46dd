// Parts that all views are made of.
import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { queueClass } from "./colors";
import { link } from "./router";
import type { Refused } from "./store";

export function Heading(p: { title: ComponentChildren; sub?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="heading">
      <div>
        <h1>{p.title}</h1>
        {p.sub && <p class="sub">{p.sub}</p>}
      </div>
      <div class="actions">{p.children}</div>
    </header>
  );
}

export function Empty(p: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{p.title}</strong>
      <div>{p.children}</div>
    </div>
  );
}

export function Failed(p: { error: Refused; what: string }) {
  return (
    <div class="failed" role="alert">
      <strong>{p.error.denied ? `You may not see ${p.what}.` : `Could not read ${p.what}.`}</strong>
      <span>{p.error.message}</span>
    </div>
  );
}

const tones: Record<string, string> = {
  Running: "good", Finished: "quiet", Active: "good", Ready: "good", Starting: "busy", Stopping: "warn", Waiting: "wait",
  "Held back": "quiet", Failed: "bad", Stopped: "warn", Inactive: "bad", Unhealthy: "bad", ByClaim: "busy", lost: "bad", fragmented: "warn", cordoned: "warn",
  RUNNING: "good", SUCCEEDED: "quiet", Completed: "quiet", Pending: "wait", FAILED: "bad", Error: "bad",
};

export function Tag(p: { children: string; title?: string | undefined }) {
  return <span class={`tag ${tones[p.children] ?? "quiet"}`} title={p.title}>{p.children}</span>;
}

export function QueueName(p: { name: string | undefined }) {
  if (!p.name) return <span class="dim">–</span>;
  return <a class="queue" href={link.queue(p.name)}><i class={`dot ${queueClass(p.name)}`} />{p.name}</a>;
}

// A bar of parts; widths are in percent of the whole.
export function Bar(p: { parts: { size: number; class: string; title?: string }[]; label: string; class?: string }) {
  return (
    <div class={`bar ${p.class ?? ""}`} role="img" aria-label={p.label}>
      {p.parts.map((part, i) => part.size > 0 && <i key={i} class={part.class} title={part.title} style={{ width: `${part.size}%` }} />)}
    </div>
  );
}

export interface Column<T> {
  name: string;
  class?: string;
  show: (row: T) => ComponentChildren;
  text: (row: T) => string; // as it is copied
}

// copyText puts a table into the clipboard, with tabs between cells.
function copyText<T>(columns: Column<T>[], rows: T[]): string {
  const cell = (s: string) => s.replace(/\s+/g, " ").trim();
  return [columns.map((c) => c.name).join("\t"), ...rows.map((r) => columns.map((c) => cell(c.text(r))).join("\t"))].join("\n");
}

export function Copy(p: { text: () => string; label?: string }) {
  const [done, set] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(p.text());
    set(true);
    window.setTimeout(() => set(false), 1500);
  };
  return <button type="button" class="small ghost" onClick={() => void copy()}>{done ? "Copied" : p.label ?? "Copy as text"}</button>;
}

const rowHeight = 36;

// A table that draws only the rows that are seen.
export function Table<T>(p: { caption: string; columns: Column<T>[]; rows: T[]; rowKey: (row: T) => string; tools?: ComponentChildren; empty?: ComponentChildren; columnsClass: string }) {
  const body = useRef<HTMLDivElement>(null);
  const { from, to } = useVisible(body, p.rows.length, rowHeight);
  const shown = p.rows.slice(from, to);
  return (
    <section class={`table ${p.columnsClass}`}>
      <div class="table-head">
        <h2>{p.caption} <span class="count">{p.rows.length.toLocaleString("en")}</span></h2>
        <div class="tools">{p.tools}{p.rows.length > 0 && <Copy text={() => copyText(p.columns, p.rows)} />}</div>
      </div>
      {p.rows.length === 0 ? p.empty : (
        <div class="scroll-x" tabIndex={0} role="region" aria-label={p.caption}>
          <div role="table" aria-label={p.caption} aria-rowcount={p.rows.length + 1} style={{ "--columns": p.columns.length }}>
            <div role="row" class="row head" aria-rowindex={1}>
              {p.columns.map((c) => <div role="columnheader" key={c.name} class={c.class}>{c.name}</div>)}
            </div>
            <div ref={body} role="rowgroup">
              <div style={{ height: `${from * rowHeight}px` }} role="presentation" />
              {shown.map((r, i) => (
                <div role="row" class="row" key={p.rowKey(r)} aria-rowindex={from + i + 2}>
                  {p.columns.map((c) => <div role="cell" key={c.name} class={c.class}>{c.show(r)}</div>)}
                </div>
              ))}
              <div style={{ height: `${Math.max(0, p.rows.length - to) * rowHeight}px` }} role="presentation" />
            </div>
          </div>
        </div>
      )}
    </section>
  );
}

const margin = 12; // rows beyond what is seen

// useVisible says which rows of a list are in the window of the page's scrolling part.
export function useVisible(of: RefObject<HTMLElement>, count: number, height: number): { from: number; to: number } {
  const [range, set] = useState({ from: 0, to: 60 });
  useLayoutEffect(() => {
    const main = document.querySelector("main");
    if (!main) return;
    let frame = 0;
    const look = () => {
      frame = 0;
      if (!of.current) return;
      const top = of.current.getBoundingClientRect().top - main.getBoundingClientRect().top;
      const from = Math.max(0, Math.floor(-top / height) - margin);
      const to = Math.min(count, Math.ceil((main.clientHeight - top) / height) + margin);
      set((r) => (r.from === from && r.to === to ? r : { from, to: Math.max(from, to) }));
    };
    const soon = () => { frame ||= requestAnimationFrame(look); };
    look();
    main.addEventListener("scroll", soon, { passive: true });
    window.addEventListener("resize", soon);
    return () => {
      main.removeEventListener("scroll", soon);
      window.removeEventListener("resize", soon);
      cancelAnimationFrame(frame);
    };
  }, [count, height]);
  return { from: Math.min(range.from, count), to: Math.min(range.to, count) };
}

export function Select(p: { label: string; value: string; options: (string | [string, string])[]; change: (v: string) => void }) {
  return (
    <label class="field">
      <span>{p.label}</span>
      <select value={p.value} onChange={(e) => p.change(e.currentTarget.value)}>
        {p.options.map((o) => {
          const [value, text] = typeof o === "string" ? [o, o] : o;
          return <option key={value} value={value}>{text}</option>;
        })}
      </select>
    </label>
  );
}

export function Search(p: { label: string; value: string; change: (v: string) => void }) {
  return (
    <label class="field search">
      <span>{p.label}</span>
      <input type="search" value={p.value} placeholder="name" onInput={(e) => p.change(e.currentTarget.value)} data-search />
    </label>
  );
}

export function Choice(p: { label: string; value: string; options: [string, string][]; change: (v: string) => void }) {
  return (
    <fieldset class="field choice">
      <legend>{p.label}</legend>
      <div>
        {p.options.map(([value, text]) => (
          <button type="button" key={value} aria-pressed={p.value === value} onClick={() => p.change(value)}>{text}</button>
        ))}
      </div>
    </fieldset>
  );
}

export function Stat(p: { name: string; value: ComponentChildren; note?: ComponentChildren; tone?: string }) {
  return (
    <div class={`stat ${p.tone ?? ""}`}>
      <dt>{p.name}</dt>
      <dd>{p.value}</dd>
      {p.note && <dd class="note">{p.note}</dd>}
    </div>
  );
}

// useTick draws again every so often, for what says "5 min ago".
export function useTick(every: number): void {
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = window.setInterval(() => draw((n) => n + 1), every);
    return () => clearInterval(timer);
  }, [every]);
}

export type Click = JSX.MouseEventHandler<HTMLButtonElement>;
