// The cluster at a glance: every node as a row of its cards, every card as a bar of its shares.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { heatClass, queueClass } from "./colors";
import { amount, byName, mib, percent, plural, since } from "./format";
import { Bar, Choice, Empty, Heading, QueueName, Search, Select, Stat, Tag } from "./parts";
import { link, setQuery, useRoute } from "./router";
import { derive, live, useLive } from "./store";
import type { Card, Job, Node } from "./types";

const order = derive(() => live.members.nodes, () => [...live.records.nodes.keys()].sort(byName));

export const usedOf = (c: Card): number => Math.min(100, (c.shares ?? []).reduce((sum, s) => sum + s.core, 0));
export const memoryOf = (c: Card): number => (c.shares ?? []).reduce((sum, s) => sum + s.memory, 0);
export const lostCard = (n: Node, c: Card): boolean => !n.ready || c.state === "Unhealthy";
const freeOf = (n: Node, c: Card): number => (lostCard(n, c) || n.cordoned || c.state === "ByClaim" ? 0 : (100 - usedOf(c)) / 100);
const wholeFree = (n: Node): number => n.cards.filter((c) => freeOf(n, c) === 1).length;

// gang is the largest job that waits: what is free but too small for one of its pods is fragmented.
const gang = derive(() => live.changed.jobs, () => {
  let largest: Job | undefined;
  for (const j of live.records.jobs.values()) {
    if (j.state === "Waiting" && j.cards > (largest?.cards ?? 0)) largest = j;
  }
  return largest;
});

export function isFragmented(n: Node): boolean {
  const need = gang()?.largest ?? 0;
  if (need === 0 || !n.ready || n.cards.length < need) return false;
  let most = 0;
  let total = 0;
  for (const c of n.cards) {
    const free = freeOf(n, c);
    total += free;
    most = Math.max(most, free);
  }
  return total > 0 && (need >= 1 ? wholeFree(n) < need : most < need);
}

interface Sums { cards: number; used: number; free: number; fragmented: number; lost: number; claimed: number; byQueue: Map<string, number> }

const sums = derive(() => live.changed.nodes * 1_000_003 + live.changed.jobs, () => {
  const s: Sums = { cards: 0, used: 0, free: 0, fragmented: 0, lost: 0, claimed: 0, byQueue: new Map() };
  for (const n of live.records.nodes.values()) {
    const fragmented = isFragmented(n);
    for (const c of n.cards) {
      s.cards++;
      if (lostCard(n, c)) s.lost++;
      if (c.state === "ByClaim") s.claimed++;
      const free = freeOf(n, c);
      s.free += free;
      if (fragmented) s.fragmented += free;
      for (const share of c.shares ?? []) {
        s.used += share.core / 100;
        s.byQueue.set(share.queue ?? "", (s.byQueue.get(share.queue ?? "") ?? 0) + share.core / 100);
      }
    }
  }
  return s;
});

const counts = derive(() => live.changed.jobs, () => {
  const c = { running: 0, waiting: 0, waitingCards: 0, oldest: 0 };
  for (const j of live.records.jobs.values()) {
    if (j.state === "Running") c.running++;
    if (j.state !== "Waiting") continue;
    c.waiting++;
    c.waitingCards += j.cards;
    if (!c.oldest || j.created < c.oldest) c.oldest = j.created;
  }
  return c;
});

export function Overview() {
  const records = useLive();
  const { query } = useRoute();
  const s = sums();
  const jobs = counts();
  const largest = gang();
  if (records.nodes.size === 0) return <NoCards />;
  const users = [...s.byQueue].sort((a, b) => b[1] - a[1]);
  return (
    <>
      <Heading title="Overview" sub={`${plural(records.nodes.size, "node")} with ${plural(s.cards, "card")}`} />
      <dl class="stats">
        <Stat name="In use" value={amount(s.used)} note={`${percent(s.used, s.cards)} of ${amount(s.cards)} cards`} />
        <Stat name="Free" value={amount(s.free)} note={s.claimed ? `${s.claimed} by ResourceClaim` : "cards"} />
        <Stat name="Fragmented" value={amount(s.fragmented)} tone={s.fragmented > 0 ? "warn" : ""}
          note={largest ? <>too small for <a href={link.job(largest.namespace, largest.name)}>{largest.job ?? largest.name}</a></> : "nothing waits"} />
        <Stat name="Lost" value={amount(s.lost)} tone={s.lost > 0 ? "bad" : ""} note={s.lost ? "unhealthy, or node not ready" : "all healthy"} />
        <Stat name="Running" value={amount(jobs.running)} note={<a href="/jobs?state=Running">jobs</a>} />
        <Stat name="Waiting" value={amount(jobs.waiting)} tone={jobs.waiting ? "wait" : ""}
          note={jobs.waiting ? <a href="/jobs?state=Waiting">{plural(jobs.waitingCards, "card")}, oldest {since(jobs.oldest)}</a> : "no job waits"} />
      </dl>
      <section class="who" aria-label="Who uses the cards">
        <Bar class="wide" label={users.map(([q, n]) => `${q || "no queue"} ${amount(n)} cards`).join(", ") || "nothing is used"}
          parts={[...users.map(([q, n]) => ({ size: (n / s.cards) * 100, class: queueClass(q), title: `${q || "no queue"}: ${amount(n)} cards` })),
            { size: (s.lost / s.cards) * 100, class: "lost", title: `lost: ${s.lost}` }]} />
        <ul class="legend">
          {users.slice(0, 12).map(([q, n]) => <li key={q}>{q ? <QueueName name={q} /> : <span class="queue"><i class="dot q-none" />no queue</span>}<b>{amount(n)}</b></li>)}
          {users.length > 12 && <li>and {users.length - 12} more</li>}
          <li><span class="queue"><i class="dot free" />free</span><b>{amount(s.free)}</b></li>
          {s.lost > 0 && <li><span class="queue"><i class="dot lost" />lost</span><b>{s.lost}</b></li>}
        </ul>
      </section>
      <Filters query={query} />
      <Nodes query={query} />
    </>
  );
}

function NoCards() {
  return (
    <>
      <Heading title="Overview" />
      <Empty title="No cards yet">
        {live.records.problems.has("gpus") ? "You may not read GPU objects: the note above says who may not read what." :
          <>elastic-gpu-agent makes a GPU object for each card. Install it on the nodes with cards, or try <code>elastic up</code>.</>}
      </Empty>
    </>
  );
}

const models = derive(() => live.members.nodes, () => [...new Set([...live.records.nodes.values()].map((n) => n.model ?? ""))].sort(byName));

function Filters({ query }: { query: URLSearchParams }) {
  const queues = [...live.records.queues.keys()].sort(byName);
  return (
    <div class="filters" role="search" aria-label="Nodes">
      <Search label="Node or job" value={query.get("find") ?? ""} change={(v) => setQuery("find", v)} />
      <Select label="Model" value={query.get("model") ?? ""} options={[["", "all"], ...models().filter(Boolean)]} change={(v) => setQuery("model", v)} />
      <Select label="Queue" value={query.get("queue") ?? ""} options={[["", "all"], ...queues]} change={(v) => setQuery("queue", v)} />
      <Select label="State" value={query.get("state") ?? ""} options={[["", "all"], ["free", "with free cards"], ["fragmented", "fragmented"], ["lost", "lost"], ["full", "full"]]} change={(v) => setQuery("state", v)} />
      <Choice label="Colour by" value={query.get("by") ?? "queue"} options={[["queue", "Queue"], ["load", "Load"]]} change={(v) => setQuery("by", v === "queue" ? "" : v)} />
    </div>
  );
}

function matches(n: Node, query: URLSearchParams): boolean {
  const find = query.get("find") ?? "";
  const model = query.get("model");
  const queue = query.get("queue");
  if (model && n.model !== model) return false;
  if (find && !n.name.includes(find) && !n.cards.some((c) => c.shares?.some((s) => s.pod.includes(find)))) return false;
  if (queue && !n.cards.some((c) => c.shares?.some((s) => s.queue === queue))) return false;
  switch (query.get("state")) {
    case "free": return wholeFree(n) > 0;
    case "fragmented": return isFragmented(n);
    case "lost": return n.cards.some((c) => lostCard(n, c));
    case "full": return n.ready && n.cards.every((c) => freeOf(n, c) === 0);
  }
  return true;
}

type Line = { head: string; nodes: Node[] } | { tiles: Node[] };
const headHeight = 44;
const tileHeight = 74;

function Nodes({ query }: { query: URLSearchParams }) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 1200, columns: 3 });
  useLayoutEffect(() => {
    const main = document.querySelector("main");
    if (!main) return;
    let frame = 0;
    const look = () => {
      frame = 0;
      if (!box.current) return;
      const top = Math.max(0, main.getBoundingClientRect().top - box.current.getBoundingClientRect().top);
      const columns = Math.max(1, Math.floor((box.current.clientWidth + 10) / 350));
      setView((v) => (Math.abs(v.top - top) < 40 && v.columns === columns && v.height === main.clientHeight ? v : { top, height: main.clientHeight, columns }));
    };
    const soon = () => { frame ||= requestAnimationFrame(look); };
    look();
    const resized = new ResizeObserver(soon);
    resized.observe(main);
    main.addEventListener("scroll", soon, { passive: true });
    return () => {
      resized.disconnect();
      main.removeEventListener("scroll", soon);
      cancelAnimationFrame(frame);
    };
  }, []);
  const lines: Line[] = [];
  const byModel = new Map<string, Node[]>();
  for (const name of order()) {
    const n = live.records.nodes.get(name);
    if (!n || !matches(n, query)) continue;
    const model = n.model ?? "";
    const list = byModel.get(model);
    if (list) list.push(n);
    else byModel.set(model, [n]);
  }
  for (const [model, nodes] of [...byModel].sort((a, b) => byName(a[0], b[0]))) {
    lines.push({ head: model, nodes });
    for (let i = 0; i < nodes.length; i += view.columns) lines.push({ tiles: nodes.slice(i, i + view.columns) });
  }
  let y = 0;
  const shown = [];
  for (const line of lines) {
    const height = "head" in line ? headHeight : tileHeight;
    if (y + height > view.top - 400 && y < view.top + view.height + 400) {
      shown.push(
        <div key={"head" in line ? `m${line.head}` : line.tiles[0]?.name} class={"head" in line ? "model" : "tiles"} style={{ top: `${y}px`, gridTemplateColumns: `repeat(${view.columns}, 1fr)` }}>
          {"head" in line ? <ModelHead model={line.head} nodes={line.nodes} /> : line.tiles.map((n) => <Tile key={n.name} node={n} byLoad={query.get("by") === "load"} only={query.get("queue") ?? ""} />)}
        </div>,
      );
    }
    y += height;
  }
  if (lines.length === 0) return <Empty title="No node is like that">Change the filters above to see others.</Empty>;
  return <div class="nodes" ref={box} style={{ height: `${y}px` }} data-nodes>{shown}</div>;
}

function ModelHead({ model, nodes }: { model: string; nodes: Node[] }) {
  const cards = nodes.reduce((sum, n) => sum + n.cards.length, 0);
  const free = nodes.reduce((sum, n) => sum + n.cards.reduce((f, c) => f + freeOf(n, c), 0), 0);
  return <h2>{model || "Other cards"} <span class="count">{plural(nodes.length, "node")} · {plural(cards, "card")} · {amount(free)} free</span></h2>;
}

function Tile({ node, byLoad, only }: { node: Node; byLoad: boolean; only: string }) {
  const free = node.cards.reduce((sum, c) => sum + freeOf(node, c), 0);
  return (
    <article class={`tile ${node.ready ? "" : "is-lost"}`} data-node={node.name}>
      <div class="tile-head">
        <a href={link.node(node.name)}>{node.name}</a>
        {!node.ready && <Tag>lost</Tag>}
        {node.cordoned && <Tag>cordoned</Tag>}
        {isFragmented(node) && <Tag title="what is free here is too small for a pod of the largest job that waits">fragmented</Tag>}
        <span class="dim">{free > 0 ? `${amount(free)} free` : "full"}</span>
      </div>
      <div class="cards">
        {node.cards.map((c) => <CardCell key={c.name} node={node} card={c} byLoad={byLoad} only={only} />)}
      </div>
    </article>
  );
}

export function cardTitle(card: Card): string {
  const shares = (card.shares ?? []).map((s) => `${s.pod}: ${s.core} %, ${mib(s.memory)}${s.queue ? ` (${s.queue})` : ""}`);
  const load = card.load === undefined ? "" : `, load ${card.load} %`;
  return [`Card ${card.index} · ${card.state}${load}`, ...(card.message ? [card.message] : []), ...shares].join("\n");
}

function CardCell({ node, card, byLoad, only }: { node: Node; card: Card; byLoad: boolean; only: string }) {
  const lost = lostCard(node, card);
  const used = usedOf(card);
  const memory = card.memory ? Math.min(100, (memoryOf(card) / card.memory) * 100) : 0;
  return (
    <a class={`card ${lost ? "lost" : ""}`} href={link.card(node.name, card.name)} tabIndex={-1} title={cardTitle(card)}
      aria-label={`card ${card.index}: ${lost ? "lost" : used === 0 ? "free" : `${used} % used`}`}>
      <span class="core">
        {byLoad ? <i class={heatClass(card.load ?? (used ? undefined : 0))} style={{ width: `${card.load ?? used}%` }} /> :
          (card.shares ?? []).map((s) => <i key={s.pod} class={`${queueClass(s.queue)}${only && s.queue !== only ? " other" : ""}`} style={{ width: `${s.core}%` }} />)}
      </span>
      <span class="memory"><i style={{ width: `${memory}%` }} /></span>
    </a>
  );
}
