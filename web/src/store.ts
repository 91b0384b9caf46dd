// The page's copy of the records, and the stream that maintains it.
import { useEffect, useState } from "preact/hooks";
import type { Cohort, Job, Me, Node, Problem, Queue } from "./types";

export interface Records {
  nodes: Map<string, Node>; queues: Map<string, Queue>; cohorts: Map<string, Cohort>;
  jobs: Map<string, Job>; problems: Map<string, Problem>;
}
type Kind = keyof Records;

const empty = (): Records => ({ nodes: new Map(), queues: new Map(), cohorts: new Map(), jobs: new Map(), problems: new Map() });

export type Link = "connecting" | "live" | "lost" | "refused";

export const live = {
  records: empty(),
  // changed counts changes of each kind, so that what is derived can be made again only when it must.
  changed: { nodes: 0, queues: 0, cohorts: 0, jobs: 0, problems: 0 } as Record<Kind, number>,
  link: "connecting" as Link,
  loaded: false,
  at: 0, // when the server last said something
  refusal: "",
  signIn: false, // a token would let us in
  me: undefined as Me | undefined,
  // steps names kinds in which members came or went; sorted lists depend on it.
  members: { nodes: 0, queues: 0, cohorts: 0, jobs: 0, problems: 0 } as Record<Kind, number>,
};

const keyOf: { [K in Kind]: (r: never) => string } = {
  nodes: (r: Node) => r.name, queues: (r: Queue) => r.name, cohorts: (r: Cohort) => r.name,
  jobs: (r: Job) => `${r.namespace}/${r.name}`, problems: (r: Problem) => r.what,
};

const watchers = new Set<() => void>();
let scheduled = 0;
let lastDraw = 0;
const drawEvery = 200;

// tell has views draw again, at most five times a second.
function tell(): void {
  if (scheduled) return;
  const wait = Math.max(0, lastDraw + drawEvery - performance.now());
  scheduled = window.setTimeout(() => {
    scheduled = 0;
    lastDraw = performance.now();
    for (const w of watchers) w();
  }, wait);
}

// useLive draws a view again when records change.
export function useLive(): Records {
  const [, draw] = useState(0);
  useEffect(() => {
    const w = () => draw((n) => n + 1);
    watchers.add(w);
    return () => void watchers.delete(w);
  }, []);
  return live.records;
}

// memo makes something from records again only when their kind changed; there is one value, not a history.
export function derive<T>(stamp: () => number, make: () => T): () => T {
  let at = -1;
  let value: T;
  return () => {
    const now = stamp();
    if (now !== at) {
      value = make();
      at = now;
    }
    return value;
  };
}

let staged: Records | undefined;

function apply(text: string): void {
  const message = JSON.parse(text) as { kind: Kind; set?: never[]; gone?: string[] };
  const to = (staged ?? live.records)[message.kind] as Map<string, unknown>;
  const size = to.size;
  for (const record of message.set ?? []) to.set(keyOf[message.kind](record), record);
  for (const key of message.gone ?? []) to.delete(key);
  if (!staged) {
    live.changed[message.kind]++;
    if (to.size !== size || message.gone) live.members[message.kind]++;
  }
}

// swap puts records in place that were collected while the old ones were shown.
function swap(): void {
  if (staged) {
    live.records = staged;
    staged = undefined;
    for (const kind of Object.keys(live.changed) as Kind[]) {
      live.changed[kind]++;
      live.members[kind]++;
    }
  }
}

let source: EventSource | undefined;
let silence = 0;
let pause = 500;

export function namespaces(): string {
  return localStorage.getItem("elastic-namespaces") ?? "";
}

export function connect(): void {
  source?.close();
  const es = new EventSource(`/api/stream?namespaces=${encodeURIComponent(namespaces())}`);
  source = es;
  const heard = () => {
    live.at = Date.now();
    clearTimeout(silence);
    silence = window.setTimeout(() => lost(es), 25_000);
  };
  es.addEventListener("begin", () => {
    heard();
    staged = live.loaded ? empty() : undefined;
  });
  es.addEventListener("records", (e) => {
    heard();
    apply((e as MessageEvent<string>).data);
    if (!staged) tell();
  });
  es.addEventListener("alive", heard);
  es.addEventListener("again", () => { if (es === source) connect(); });
  es.addEventListener("ready", () => {
    heard();
    swap();
    live.loaded = true;
    live.link = "live";
    pause = 500;
    if (!live.me) void whoAmI();
    performance.mark("ready");
    tell();
  });
  es.onerror = () => lost(es);
}

// lost goes on showing what was there, and tries again.
function lost(es: EventSource): void {
  if (es !== source) return;
  es.close();
  clearTimeout(silence);
  live.link = "lost";
  tell();
  window.setTimeout(() => void again(es), pause);
  pause = Math.min(pause * 2, 8000);
}

async function again(es: EventSource): Promise<void> {
  if (es !== source) return;
  await whoAmI();
  if ((live.link as Link) !== "refused") connect();
}

// whoAmI also finds out whether the server refuses us: a stream only fails.
export async function whoAmI(): Promise<void> {
  try {
    const response = await fetch("/api/me");
    if (response.status === 401) {
      const said = (await response.json()) as { error: string; signIn?: boolean };
      live.link = "refused"; // only now: while the answer was read, the stream may have been lost
      live.refusal = said.error;
      live.signIn = said.signIn ?? false;
      forget();
    } else if (response.ok) {
      live.me = (await response.json()) as Me;
    }
  } catch {
    // the server is gone; the stream's next try says more
  }
  tell();
}

// forget what was seen: who signs in next may be someone else.
function forget(): void {
  source?.close();
  source = undefined;
  clearTimeout(silence);
  live.records = empty();
  staged = undefined;
  live.loaded = false;
  live.me = undefined;
}

// signIn with a token; the server makes a cookie of it that no script reads.
export async function signIn(token: string): Promise<void> {
  await ask("/api/sign-in", { token });
  live.link = "connecting";
  live.refusal = "";
  connect();
  await whoAmI();
}

export async function signOut(): Promise<void> {
  await ask("/api/sign-out", {});
  await whoAmI();
}

export class Refused extends Error {
  constructor(message: string, public denied: boolean) { super(message); }
}

// ask the server; errors have its words.
export async function ask<T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = signal ? { signal } : {};
  if (body !== undefined) {
    init.method = "POST";
    init.headers = { "Content-Type": "application/json", "X-Elastic": "page" };
    init.body = JSON.stringify(body);
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (e) {
    if (e instanceof DOMException) throw e;
    throw new Refused("The server does not answer.", false);
  }
  const answer = (await response.json()) as T & { error?: string; denied?: boolean };
  if (!response.ok) throw new Refused(answer.error ?? response.statusText, answer.denied ?? false);
  return answer;
}

// useAsked asks now, and again every so often and when the key changes; it shows the last answer meanwhile.
export function useAsked<T>(path: string | undefined, every: number, stamp: unknown = 0): { answer?: T; error?: Refused; again: () => void } {
  const [state, set] = useState<{ path?: string; answer?: T; error?: Refused }>({});
  const [tries, retry] = useState(0);
  useEffect(() => {
    if (!path) return;
    const end = new AbortController();
    let timer = 0;
    const go = async () => {
      try {
        const answer = await ask<T>(path, undefined, end.signal);
        set({ path, answer });
      } catch (e) {
        if (end.signal.aborted) return;
        set((s) => ({ path, ...(s.path === path && s.answer !== undefined ? { answer: s.answer } : {}), error: e as Refused }));
      }
      timer = window.setTimeout(() => void go(), every);
    };
    void go();
    return () => {
      end.abort();
      clearTimeout(timer);
    };
  }, [path, every, tries, stamp]);
  const shown = state.path === path ? state : {};
  return {
    ...(shown.answer !== undefined ? { answer: shown.answer } : {}),
    ...(shown.error ? { error: shown.error } : {}),
    again: () => retry((n) => n + 1),
  };
}
