// Simulation: a result of "elastic simulate -o json", read in the browser and shown as queues and hours are. It goes nowhere.
import { useState } from "preact/hooks";
import { Chart } from "./chart";
import { queueClass } from "./colors";
import { amount, percent, span } from "./format";
import { type Column, Empty, Heading, Select, Table } from "./parts";
import { setQuery, useRoute } from "./router";

interface Spread { mean: number; p50: number; p99: number; p999: number; max: number }
interface Group {
  name: string; jobs: number; jobCompletionTime: Spread; queueingDelay: Spread; slowdown: Spread;
  quota?: number; quotaUsed?: number; borrowedCardHours?: number; belowQuotaCardHours?: number;
  fairShare?: { weight: number; mean: number; most: number };
}
interface Variant {
  name: string; jobs: number; ended: number; neverStarted: number; makespanSeconds: number; jobCompletionTime: Spread; queueingDelay: Spread;
  bySize: Group[] | null; byQueue: Group[] | null; preemptions: number; evictions: number; workLostCardHours: number; cardsUsed: number; fragmented: number;
  cardHours: number; money?: number; samples?: { at: number; used: number; waiting: number; queues?: Record<string, number>; weightedShares?: Record<string, number> }[];
}

// read a file; what is no result is refused with what it lacks.
function read(text: string): Variant[] {
  const data = JSON.parse(text) as Variant | Variant[];
  const list = Array.isArray(data) ? data : [data];
  if (!list.length || list.some((v) => typeof v?.jobs !== "number" || !v.jobCompletionTime || !v.queueingDelay)) throw new Error("It has no jobs and their times.");
  return list;
}

// The last result, so that it is there when someone comes back to the view.
let opened: { file: string; variants: Variant[] } | undefined;

export function Simulation() {
  const [, draw] = useState(0);
  const [error, setError] = useState("");
  const { query } = useRoute();
  const open = async (file: File | undefined) => {
    if (!file) return;
    try {
      opened = { file: file.name, variants: read(await file.text()) };
      setError("");
    } catch (e) {
      setError(`${file.name} is no result of a simulation. ${(e as Error).message}`);
    }
    draw((n) => n + 1);
  };
  const variants = opened?.variants ?? [];
  const shown = variants.find((v) => v.name === query.get("variant")) ?? variants[0];
  return (
    <>
      <Heading title="Simulation" sub={opened ? `${opened.file}: ${shown?.jobs.toLocaleString("en") ?? 0} jobs in ${variants.length} variant${variants.length === 1 ? "" : "s"}` : "What would become of these jobs: a result of elastic simulate, in the views of a cluster"}>
        {variants.length > 1 && <Select label="Variant" value={shown?.name ?? ""} options={variants.map((v) => v.name)} change={(v) => setQuery("variant", v)} />}
        <label class="field"><span>Result</span><input type="file" accept=".json,application/json" onChange={(e) => void open(e.currentTarget.files?.[0])} /></label>
      </Heading>
      {error && <div class="failed" role="alert"><strong>Not opened.</strong><span>{error}</span></div>}
      {!opened && !error && <Empty title="No result is open">Make one: <code>elastic simulate --trace jobs.csv --nodes 8x8:H100-80G -o json &gt; result.json</code>. The file is read in this browser and sent nowhere.</Empty>}
      {opened && <Variants all={variants} />}
      {shown?.samples && shown.samples.length > 1 && <Hours v={shown} />}
      {shown?.byQueue && <Groups caption="Queues" list={shown.byQueue} queues />}
      {shown?.bySize && <Groups caption="Sizes" list={shown.bySize} />}
    </>
  );
}

function Variants({ all }: { all: Variant[] }) {
  const num = (name: string, of: (v: Variant) => string): Column<Variant> => ({ name, class: "num", text: of, show: of });
  const columns: Column<Variant>[] = [
    { name: "Variant", class: "name", text: (v) => v.name, show: (v) => <strong>{v.name}</strong> },
    num("Completion", (v) => span(v.jobCompletionTime.mean)), num("Wait, mean", (v) => span(v.queueingDelay.mean)), num("Wait, p99", (v) => span(v.queueingDelay.p99)),
    num("In all", (v) => span(v.makespanSeconds)), num("Cards used", (v) => percent(v.cardsUsed, 1)), num("Fragmented", (v) => percent(v.fragmented, 1)),
    num("Evictions", (v) => amount(v.preemptions + v.evictions)), num("Lost, card h", (v) => amount(v.workLostCardHours)), num("Never started", (v) => amount(v.neverStarted)),
    ...(all.some((v) => v.money) ? [num("Money", (v) => amount(v.money ?? 0))] : []),
  ];
  return <Table caption="Variants" columnsClass="t-variants" columns={columns} rows={all} rowKey={(v) => v.name} />;
}

function Hours({ v }: { v: Variant }) {
  const samples = v.samples ?? [];
  const times = samples.map((s) => s.at);
  const quota = (v.byQueue ?? []).reduce((sum, q) => sum + (q.quota ?? 0), 0);
  // Those that borrow most: more lines than this nobody tells apart.
  const borrow = (v.byQueue ?? []).filter((q) => q.fairShare?.most).sort((a, b) => b.fairShare!.most - a.fairShare!.most).slice(0, 8);
  return (
    <div class="charts" key={v.name}>
      <Chart title="Cards in use against quota" times={times} simulated lines={[{ name: "quota", class: "line-quiet", values: times.map(() => quota), step: true }, { name: "used", class: "line-main", values: samples.map((s) => s.used), fill: true }]} />
      <Chart title="Jobs that wait" times={times} simulated lines={[{ name: "waiting", class: "line-wait", values: samples.map((s) => s.waiting), fill: true }]} />
      {borrow.length > 0 && <Chart title="Weighted share, by queue" times={times} simulated lines={borrow.map((q) => ({ name: q.name, class: queueClass(q.name), values: samples.map((s) => s.weightedShares?.[q.name] ?? 0) }))} />}
    </div>
  );
}

function Groups({ caption, list, queues }: { caption: string; list: Group[]; queues?: boolean }) {
  const num = (name: string, of: (g: Group) => string): Column<Group> => ({ name, class: "num", text: of, show: of });
  const fair = list.some((g) => g.fairShare);
  const columns: Column<Group>[] = [
    { name: queues ? "Queue" : "Cards", class: "name", text: (g) => g.name, show: (g) => g.name },
    num("Jobs", (g) => amount(g.jobs)), num("Completion", (g) => span(g.jobCompletionTime.mean)), num("Wait, mean", (g) => span(g.queueingDelay.mean)), num("Wait, p99", (g) => span(g.queueingDelay.p99)),
    num("Slowdown", (g) => amount(g.slowdown.mean)),
    ...(queues ? [num("Quota", (g) => amount(g.quota ?? 0)), num("Used", (g) => percent(g.quotaUsed ?? 0, 1)), num("Borrowed", (g) => amount(g.borrowedCardHours ?? 0)), num("Below quota", (g) => amount(g.belowQuotaCardHours ?? 0))] : []),
    ...(fair ? [num("Weight", (g) => amount(g.fairShare?.weight ?? 0)), num("Weighted share", (g) => amount(Math.round(g.fairShare?.mean ?? 0)))] : []),
  ];
  return <Table caption={caption} columnsClass={fair ? "t-groups t-fair" : queues ? "t-groups" : "t-sizes"} columns={columns} rows={list} rowKey={(g) => g.name} />;
}
