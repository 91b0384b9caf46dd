// One node with its cards, and one card with its shares.
import { Chart } from "./chart";
import { heatClass, queueClass } from "./colors";
import { mib, plural } from "./format";
import { Bar, type Column, Empty, Heading, QueueName, Stat, Table, Tag } from "./parts";
import { isFragmented, lostCard, memoryOf, usedOf } from "./overview";
import { link } from "./router";
import { useAsked, useLive } from "./store";
import type { Card, Node, PastOfCard, Process, Share } from "./types";

export function NodeView({ name, card }: { name: string; card: string | undefined }) {
  const records = useLive();
  const node = records.nodes.get(name);
  if (!node) return <><Heading title={name} /><Empty title="This node has no cards, is not there, or you may not see it"><a href="/">All nodes</a></Empty></>;
  const one = card ? node.cards.find((c) => c.name === card) : undefined;
  if (card) return one ? <CardView node={node} card={one} /> : <><Heading title={card} /><Empty title="This card is not there"><a href={link.node(name)}>The node's cards</a></Empty></>;
  const columns: Column<Card>[] = [
    { name: "Card", class: "name", text: (c) => c.name, show: (c) => <a href={link.card(name, c.name)}>{c.index} <span class="dim">{c.name}</span></a> },
    { name: "State", text: (c) => c.state, show: (c) => <Tag title={c.message}>{c.state}</Tag> },
    { name: "Compute", class: "wide", text: (c) => `${usedOf(c)} %`, show: (c) => <SharesBar card={c} of="core" /> },
    { name: "Memory", class: "wide", text: (c) => `${mib(memoryOf(c))} of ${mib(c.memory)}`, show: (c) => <SharesBar card={c} of="memory" /> },
    { name: "Load", class: "num", text: (c) => (c.load === undefined ? "" : `${c.load} %`), show: (c) => (c.load === undefined ? <span class="dim">–</span> : `${c.load} %`) },
    { name: "Held by", class: "why", text: (c) => (c.shares ?? []).map((s) => s.pod).join(" "), show: (c) => <HeldBy shares={c.shares ?? []} /> },
  ];
  return (
    <>
      <Heading title={<>{name} {!node.ready && <Tag>lost</Tag>}{node.cordoned && <Tag>cordoned</Tag>}{isFragmented(node) && <Tag>fragmented</Tag>}</>} sub={`${node.model ?? ""} · ${plural(node.cards.length, "card")}`} />
      <Table caption="Cards" columnsClass="t-cards" columns={columns} rows={node.cards} rowKey={(c) => c.name} />
    </>
  );
}

function HeldBy({ shares }: { shares: Share[] }) {
  if (!shares.length) return <span class="dim">free</span>;
  return <>{shares.map((s, i) => <span key={s.pod}>{i > 0 && ", "}{s.workload ? <a href={link.job(s.pod.split("/")[0] ?? "", s.workload)}>{s.pod}</a> : s.pod}</span>)}</>;
}

function SharesBar({ card, of }: { card: Card; of: "core" | "memory" }) {
  const whole = of === "core" ? 100 : card.memory || 1;
  const used = of === "core" ? usedOf(card) : memoryOf(card);
  const text = of === "core" ? `${used} %` : `${mib(used)} of ${mib(card.memory)}`;
  return <span class="with-text"><Bar label={text} parts={(card.shares ?? []).map((s) => ({ size: ((of === "core" ? s.core : s.memory) / whole) * 100, class: queueClass(s.queue), title: s.pod }))} /><span>{text}</span></span>;
}

// CardHours is the card over the last six hours, as far as the server has collected.
function CardHours({ card }: { card: Card }) {
  const { answer } = useAsked<PastOfCard>(`/api/history?card=${encodeURIComponent(card.name)}`, 30_000);
  if (!answer?.times || !answer.given || answer.times.length < 2) return null;
  const load = answer.load ?? [];
  return (
    <div class="charts">
      <Chart title="Compute given out, and load, %" times={answer.times} lines={[{ name: "given out", class: "line-main", values: answer.given, fill: true },
        ...(load.some((l) => l !== null) ? [{ name: "load", class: "line-wait", values: load as number[] }] : [])]} />
    </div>
  );
}

function CardView({ node, card }: { node: Node; card: Card }) {
  const columns: Column<Share>[] = [
    { name: "Pod", class: "name", text: (s) => s.pod, show: (s) => (s.workload ? <a href={link.job(s.pod.split("/")[0] ?? "", s.workload)}>{s.pod}</a> : s.pod) },
    { name: "Queue", text: (s) => s.queue ?? "", show: (s) => <QueueName name={s.queue} /> },
    { name: "Compute", class: "num", text: (s) => `${s.core} %`, show: (s) => `${s.core} %` },
    { name: "Memory", class: "num", text: (s) => mib(s.memory), show: (s) => mib(s.memory) },
  ];
  return (
    <>
      <Heading title={<>Card {card.index} <Tag title={card.message}>{lostCard(node, card) && card.state === "Ready" ? "lost" : card.state}</Tag></>} sub={<>{card.model ?? node.model} in <a href={link.node(node.name)}>{node.name}</a> · {card.name}{card.message ? ` · ${card.message}` : ""}</>} />
      <dl class="stats">
        <Stat name="Compute given out" value={`${usedOf(card)} %`} note={plural((card.shares ?? []).length, "share")} />
        <Stat name="Memory given out" value={mib(memoryOf(card))} note={`of ${mib(card.memory)}`} />
        <Stat name="Load" value={card.load === undefined ? "–" : `${card.load} %`} note={card.load === undefined ? "not measured here" : "measured"} />
        {!!card.power && <Stat name="Power" value={`${card.power} W`} />}
        {!!card.processes && <Stat name="Swapped out" value={mib(swappedOf(card))} note={swappedOf(card) ? "of card memory, on the host" : "nothing"} />}
      </dl>
      <section class="big-card">
        <h2>Compute</h2><SharesBar card={card} of="core" />
        <h2>Memory</h2><SharesBar card={card} of="memory" />
        {card.load !== undefined && <><h2>Load</h2><span class="with-text"><Bar label={`load ${card.load} %`} parts={[{ size: card.load, class: heatClass(card.load) }]} /><span>{card.load} %</span></span></>}
      </section>
      <CardHours card={card} />
      <Table caption="Shares" columnsClass="t-shares" columns={columns} rows={card.shares ?? []} rowKey={(s) => s.pod} empty={<Empty title="Nothing uses this card">{lostCard(node, card) ? "It is lost: see its state above." : "A pod that asks for a card, or a part of one, can have it."}</Empty>} />
      <Processes card={card} />
    </>
  );
}

const swappedOf = (c: Card): number => (c.processes ?? []).reduce((sum, p) => sum + (p.swapped ?? 0), 0);

// Processes that the node's agent sees on the card. Where nobody looks, as on a simulated node, there is no table.
function Processes({ card }: { card: Card }) {
  if (!card.processes) return null;
  const workloads = new Map((card.shares ?? []).map((s) => [s.pod, s.workload]));
  const columns: Column<Process>[] = [
    { name: "Process", class: "num", text: (p) => String(p.pid), show: (p) => p.pid },
    { name: "Pod", class: "name", text: (p) => p.pod ?? "", show: (p) => <PodOf pod={p.pod} workload={workloads.get(p.pod ?? "")} /> },
    { name: "Container", text: (p) => p.container ?? "", show: (p) => p.container ?? <span class="dim">–</span> },
    { name: "On the card", class: "num", text: (p) => mib(p.memory ?? 0), show: (p) => mib(p.memory ?? 0) },
    { name: "Swapped out", class: "num", text: (p) => mib(p.swapped ?? 0), show: (p) => (p.swapped ? <b class="wait">{mib(p.swapped)}</b> : <span class="dim">–</span>) },
  ];
  return <Table caption="Processes" columnsClass="t-processes" columns={columns} rows={card.processes} rowKey={(p) => String(p.pid)} />;
}

function PodOf({ pod, workload }: { pod: string | undefined; workload: string | undefined }) {
  if (!pod) return <span class="dim">of no pod with this card</span>;
  return workload ? <a href={link.job(pod.split("/")[0] ?? "", workload)}>{pod}</a> : <>{pod}</>;
}
