// Simulation: a result of "elastic simulate -o json", read in the browser and shown as queues and hours are. It goes nowhere.
import { useState } from "preact/hooks";
import { Chart } from "./chart";
import { queueClass } from "./colors";
import { amount, byName, percent, span } from "./format";
import { type Column, Empty, Heading, Select, Table } from "./parts";
import { setQuery, useRoute } from "./router";

interface Spread { mean: number; p50: number; p99: number; p999: number; max: number }
interface Group {
  name: string; jobs: number; jobCompletionTime: Spread; queueingDelay: Spread; slowdown: Spread;
  quota?: number; quotaUsed?: number; borrowedCardHours?: number; belowQuotaCardHours?: number;
  fairShare?: { weight: number; mean: number; most: number };
  againstAlone?: { finishTimeFairness: Spread; later: number };
  waitedForBudget?: Waited; waitedForReservation?: Waited;
}
interface Waited { jobs: number; seconds: number }
interface Budget { on: string; amount: number; unit: string; period: string; periods: { from: number; until: number; spent: number }[] | null }
interface Reservation { for: string; from: number; until: number; cards: number; lacking: number }
interface Sample { at: number; used: number; waiting: number; queues?: Record<string, number>; weightedShares?: Record<string, number>; budgetsSpent?: Record<string, number> }
interface Variant {
  name: string; jobs: number; ended: number; neverStarted: number; makespanSeconds: number; jobCompletionTime: Spread; queueingDelay: Spread;
  bySize: Group[] | null; byQueue: Group[] | null; preemptions: number; evictions: number; workLostCardHours: number; cardsUsed: number; fragmented: number;
  cardHours: number; money?: number; samples?: Sample[]; nodesLost?: number; spotNodesTaken?: number;
  moves?: number; workLostByMovesCardHours?: number; drained?: number;
  waitedForBudget?: Waited; waitedForReservation?: Waited; budgets?: Budget[]; reservations?: Reservation[];
  notes?: string[]; linesLeftOut?: Record<string, number>; neverStartedJobs?: NeverStarted[]; stopped?: boolean; meanDelayOfAllSubmitted?: number;
}
interface NeverStarted { queue: string; why: string; jobs: string[] }

// read a file; what is no result is refused with what it lacks.
function read(text: string): Variant[] {
  const data = JSON.parse(text) as Variant | Variant[];
  const list = Array.isArray(data) ? data : [data];
  if (!list.length || list.some((v) => typeof v?.jobs !== "number" || !v.jobCompletionTime || !v.queueingDelay)) throw new Error("It has no jobs and their times.");
  if (list.some((v) => [v.bySize, v.byQueue, v.samples, v.budgets, v.reservations, v.notes, v.neverStartedJobs].some((part) => part && !Array.isArray(part)))) throw new Error("Its parts are no lists.");
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
      {shown && <Notes v={shown} all={variants} />}
      {shown?.samples && shown.samples.length > 1 && <Hours v={shown} />}
      {shown?.byQueue && <Groups caption="Queues" list={shown.byQueue} queues />}
      {shown?.budgets && <Budgets list={shown.budgets} />}
      {shown?.reservations && <Reservations list={shown.reservations} />}
      {shown?.neverStartedJobs && <NotStarted list={shown.neverStartedJobs} stopped={shown.stopped} />}
      {shown?.bySize && <Groups caption="Sizes" list={shown.bySize} />}
    </>
  );
}

function num<T>(name: string, of: (row: T) => string): Column<T> {
  return { name, class: "num", text: of, show: of };
}

// when is a column that some rows have something to say in.
function when<T>(rows: T[], has: (row: T) => unknown, ...columns: Column<T>[]): Column<T>[] {
  return rows.some(has) ? columns : [];
}

const waited = (w: Waited | undefined): string => (w?.jobs ? `${amount(w.jobs)}, ${span(w.seconds)}` : "–");

function Variants({ all }: { all: Variant[] }) {
  const columns: Column<Variant>[] = [
    { name: "Variant", class: "name", text: (v) => v.name, show: (v) => <strong>{v.name}</strong> },
    num("Completion", (v) => span(v.jobCompletionTime.mean)), num("Wait, mean", (v) => span(v.queueingDelay.mean)), num("Wait, p99", (v) => span(v.queueingDelay.p99)),
    num("In all", (v) => span(v.makespanSeconds)), num("Cards used", (v) => percent(v.cardsUsed, 1)), num("Fragmented", (v) => percent(v.fragmented, 1)),
    num("Evictions", (v) => amount(v.preemptions + v.evictions)), num("Lost, card h", (v) => amount(v.workLostCardHours)), num("Never started", (v) => amount(v.neverStarted)),
    ...when(all, (v) => v.nodesLost || v.spotNodesTaken, num("Nodes lost", (v) => amount((v.nodesLost ?? 0) + (v.spotNodesTaken ?? 0)))),
    ...when(all, (v) => v.moves, num("Moves", (v) => amount(v.moves ?? 0)), num("Lost by moves", (v) => amount(v.workLostByMovesCardHours ?? 0))),
    ...when(all, (v) => v.waitedForBudget, num("For budgets", (v) => waited(v.waitedForBudget)), num("Drained", (v) => amount(v.drained ?? 0))),
    ...when(all, (v) => v.waitedForReservation, num("For reservations", (v) => waited(v.waitedForReservation))),
    ...when(all, (v) => v.money, num("Money", (v) => amount(v.money ?? 0))),
  ];
  return <Table caption="Variants" columnsClass="t-variants t-simulated" columns={columns} rows={all} rowKey={(v) => v.name} />;
}

// Notes of a variant: what is odd about its trace and cluster, what of the trace is left out, and whether others ended other jobs.
function Notes({ v, all }: { v: Variant; all: Variant[] }) {
  const notes = [...(v.notes ?? [])];
  const left = Object.entries(v.linesLeftOut ?? {}).sort((a, b) => b[1] - a[1] || byName(a[0], b[0]));
  const lines = left.reduce((sum, [, n]) => sum + n, 0);
  if (lines) notes.push(`${amount(lines)} of ${amount(v.jobs + lines)} lines of the trace are left out: ${left.map(([why, n]) => `${why} (${amount(n)})`).join(", ")}`);
  if (all.some((o) => o.ended !== v.ended)) notes.push(`It ended ${amount(v.ended)} of ${amount(v.jobs)} jobs, and not all variants as many: means are of those alone. All that were submitted have waited ${span(v.meanDelayOfAllSubmitted ?? v.queueingDelay.mean)} on average`);
  if (!notes.length) return null;
  return <section class="panel why-panel notes" role="note" aria-label="Notes"><h2>Notes</h2><ul class="refs">{notes.map((s) => <li key={s}>{s}</li>)}</ul></section>;
}

function Hours({ v }: { v: Variant }) {
  const samples = v.samples ?? [];
  const times = samples.map((s) => s.at);
  const quota = (v.byQueue ?? []).reduce((sum, q) => sum + (q.quota ?? 0), 0);
  // Those that borrow most: more lines than this nobody tells apart.
  const borrow = (v.byQueue ?? []).filter((q) => q.fairShare?.most).sort((a, b) => b.fairShare!.most - a.fairShare!.most).slice(0, 8);
  const budgets = Object.keys(samples.at(-1)?.budgetsSpent ?? {}).slice(0, 8);
  return (
    <div class="charts" key={v.name}>
      <Chart title="Cards in use against quota" times={times} simulated lines={[{ name: "quota", class: "line-quiet", values: times.map(() => quota), step: true }, { name: "used", class: "line-main", values: samples.map((s) => s.used), fill: true }]} />
      <Chart title="Jobs that wait" times={times} simulated lines={[{ name: "waiting", class: "line-wait", values: samples.map((s) => s.waiting), fill: true }]} />
      {borrow.length > 0 && <Chart title="Weighted share, by queue" times={times} simulated lines={borrow.map((q) => ({ name: q.name, class: queueClass(q.name), values: samples.map((s) => s.weightedShares?.[q.name] ?? 0) }))} />}
      {budgets.length > 0 && <Chart title="Spent of each budget, %" times={times} simulated lines={budgets.map((b) => ({ name: b, class: queueClass(b.replace(/^.*\/|, \w+$/g, "")), values: samples.map((s) => 100 * (s.budgetsSpent?.[b] ?? 0)), step: true }))} />}
    </div>
  );
}

function Groups({ caption, list, queues }: { caption: string; list: Group[]; queues?: boolean }) {
  const columns: Column<Group>[] = [
    { name: queues ? "Queue" : "Cards", class: "name", text: (g) => g.name, show: (g) => g.name },
    num("Jobs", (g) => amount(g.jobs)), num("Completion", (g) => span(g.jobCompletionTime.mean)), num("Wait, mean", (g) => span(g.queueingDelay.mean)), num("Wait, p99", (g) => span(g.queueingDelay.p99)),
    num("Slowdown", (g) => amount(g.slowdown.mean)),
    ...when(list, () => queues, num("Quota", (g) => amount(g.quota ?? 0)), num("Used", (g) => percent(g.quotaUsed ?? 0, 1)), num("Borrowed", (g) => amount(g.borrowedCardHours ?? 0)), num("Below quota", (g) => amount(g.belowQuotaCardHours ?? 0))),
    ...when(list, (g) => g.fairShare, num("Weight", (g) => amount(g.fairShare?.weight ?? 0)), num("Weighted share", (g) => amount(Math.round(g.fairShare?.mean ?? 0)))),
    ...when(list, (g) => g.againstAlone, num("Against alone", (g) => amount(g.againstAlone?.finishTimeFairness.mean ?? 0)), num("Later than alone", (g) => percent(g.againstAlone?.later ?? 0, 1))),
    ...when(list, (g) => g.waitedForBudget, num("For budgets", (g) => waited(g.waitedForBudget))),
    ...when(list, (g) => g.waitedForReservation, num("For reservations", (g) => waited(g.waitedForReservation))),
  ];
  return <Table caption={caption} columnsClass={`${queues ? "t-groups" : "t-sizes"} t-simulated`} columns={columns} rows={list} rowKey={(g) => g.name} />;
}

// Budgets, period by period: how much of each was spent.
function Budgets({ list }: { list: Budget[] }) {
  const rows = list.flatMap((b) => (b.periods ?? []).map((p) => ({ ...b, ...p })));
  const columns: Column<(typeof rows)[number]>[] = [
    { name: "Budget", class: "name", text: (b) => b.on, show: (b) => b.on },
    num("Amount", (b) => `${amount(b.amount)} ${b.unit}`), num("Period", (b) => b.period), num("From", (b) => span(b.from)), num("Until", (b) => span(b.until)),
    num("Spent", (b) => amount(b.spent)), num("Of it", (b) => percent(b.spent, b.amount)),
  ];
  return <Table caption="Budgets" columnsClass="t-budgets t-simulated" columns={columns} rows={rows} rowKey={(b) => `${b.on} ${b.from}`} />;
}

// Reservations, each time they came: cards that others had when they should have been free are lacking.
function Reservations({ list }: { list: Reservation[] }) {
  const columns: Column<Reservation>[] = [
    { name: "Reserved for", class: "name", text: (r) => r.for, show: (r) => r.for },
    num("Cards", (r) => amount(r.cards)), num("From", (r) => span(r.from)), num("Until", (r) => span(r.until)), num("Lacking", (r) => amount(r.lacking)),
  ];
  return <Table caption="Reservations" columnsClass="t-reservations t-simulated" columns={columns} rows={list} rowKey={(r) => `${r.for} ${r.from}`} />;
}

// Jobs that never started, by what they waited for.
function NotStarted({ list, stopped }: { list: NeverStarted[]; stopped?: boolean | undefined }) {
  const columns: Column<NeverStarted>[] = [
    { name: "Queue", class: "name", text: (g) => g.queue, show: (g) => g.queue },
    num("Jobs", (g) => amount(g.jobs.length)), { name: "First", text: (g) => g.jobs[0] ?? "", show: (g) => g.jobs[0] },
    { name: "Why", class: "wide", text: (g) => g.why, show: (g) => <span title={g.why}>{g.why}</span> },
  ];
  return <Table caption={stopped ? "Not started when the run was stopped" : "Never started"} columnsClass="t-not-started" columns={columns} rows={list} rowKey={(g) => `${g.queue} ${g.why}`} />;
}
