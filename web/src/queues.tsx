// Queues: the cohort tree, and one queue with its order.
import type { ComponentChildren } from "preact";
import { act } from "./act";
import { Chart } from "./chart";
import { queueClass } from "./colors";
import { amount, byName, cardsIn, clock, inUnit, plural, since, span, starts, now, words } from "./format";
import { Bar, type Column, Copy, Empty, Failed, Heading, QueueName, Select, Stat, Table, Tag, useTick } from "./parts";
import { link, setQuery, useRoute } from "./router";
import { derive, live, useAsked, useLive } from "./store";
import type { Job, Past, Place, Queue, Quota } from "./types";

// Sum is one resource of a queue or cohort, over flavors and everything below.
interface Sum {
  name: string; depth: number; queue?: Queue; nominal: number; used: number; borrowed: number; share: number;
  running: number; waiting: number; below: Sum[];
}

const cards = "cards";
const of = (resource: string, q: Quota, n: number): number => (resource === cards ? cardsIn(q.resource, n) : q.resource === resource ? n : 0);

const resources = derive(() => live.changed.queues, () => {
  const names = new Set<string>();
  for (const q of live.records.queues.values()) for (const quota of q.quotas) names.add(quota.resource);
  return [...names].sort(byName);
});

function leaf(q: Queue, resource: string): Sum {
  const s: Sum = { name: q.name, depth: 0, queue: q, nominal: 0, used: 0, borrowed: 0, share: q.share, running: q.admitted, waiting: q.pending, below: [] };
  for (const quota of q.quotas) {
    s.nominal += of(resource, quota, quota.nominal);
    s.used += of(resource, quota, quota.used);
    s.borrowed += of(resource, quota, quota.borrowed);
  }
  return s;
}

// tree hangs queues below cohorts and adds up; cohorts come before queues, each by name.
export function tree(resource: string): Sum[] {
  const cohorts = new Map<string, Sum>();
  const cohort = (name: string): Sum => {
    let s = cohorts.get(name);
    if (!s) {
      s = { name, depth: 0, nominal: 0, used: 0, borrowed: 0, share: 0, running: 0, waiting: 0, below: [] };
      cohorts.set(name, s);
    }
    return s;
  };
  for (const c of live.records.cohorts.values()) {
    const s = cohort(c.name);
    s.share = c.share ?? 0;
    for (const q of c.quotas) s.nominal += of(resource, q, q.nominal);
  }
  const roots: Sum[] = [];
  for (const q of live.records.queues.values()) (q.cohort ? cohort(q.cohort).below : roots).push(leaf(q, resource));
  for (const [name, s] of [...cohorts]) {
    const parent = live.records.cohorts.get(name)?.parent;
    (parent && parent !== name ? cohort(parent).below : roots).push(s);
  }
  const add = (s: Sum, depth: number): void => {
    s.depth = depth;
    sort(s.below);
    for (const b of s.below) {
      if (depth > 50) return; // cohorts in a circle
      add(b, depth + 1);
      s.nominal += b.nominal;
      s.used += b.used;
      s.borrowed += b.borrowed;
      s.running += b.running;
      s.waiting += b.waiting;
    }
  };
  const sort = (list: Sum[]) => list.sort((a, b) => Number(!!a.queue) - Number(!!b.queue) || byName(a.name, b.name));
  sort(roots).forEach((s) => add(s, 0));
  const flat: Sum[] = [];
  const walk = (list: Sum[]) => list.forEach((s) => { flat.push(s); walk(s.below); });
  walk(roots);
  return flat;
}

function QuotaBar({ s, resource }: { s: Sum; resource: string }) {
  const most = Math.max(s.nominal, s.used, 1e-9);
  const own = Math.min(s.used, s.nominal);
  const tick = s.nominal < s.used ? (s.nominal / most) * 100 : 100;
  return (
    <span class="quota">
      <Bar label={`${inUnit(resource, s.used)} of ${inUnit(resource, s.nominal)} used`} parts={[
        { size: (own / most) * 100, class: s.queue ? queueClass(s.name) : "cohort", title: `own quota: ${inUnit(resource, own)}` },
        { size: ((s.used - own) / most) * 100, class: `${s.queue ? queueClass(s.name) : "cohort"} borrowed`, title: `borrowed: ${inUnit(resource, s.used - own)}` },
      ]} />
      {tick < 100 && <b class="nominal" style={{ left: `${tick}%` }} title={`nominal quota: ${inUnit(resource, s.nominal)}`} />}
    </span>
  );
}

export function Queues() {
  const records = useLive();
  const { query } = useRoute();
  const resource = query.get("resource") ?? cards;
  const rows = tree(resource);
  const unit = (n: number) => inUnit(resource, n);
  const columns: Column<Sum>[] = [
    {
      name: "Queue", class: "name", text: (s) => "  ".repeat(s.depth) + s.name,
      show: (s) => <span class={`depth d${Math.min(s.depth, 6)}`}>{s.queue ? <QueueName name={s.name} /> : <strong>{s.name}</strong>}
        {s.queue && s.queue.status !== "Active" && <Tag title={s.queue.why}>{s.queue.status}</Tag>}</span>,
    },
    { name: "Use of quota", class: "wide", text: (s) => `${unit(s.used)}/${unit(s.nominal)}`, show: (s) => <QuotaBar s={s} resource={resource} /> },
    { name: "Used", class: "num", text: (s) => unit(s.used), show: (s) => unit(s.used) },
    { name: "Nominal", class: "num", text: (s) => unit(s.nominal), show: (s) => unit(s.nominal) },
    { name: "Borrowed", class: "num", text: (s) => (s.queue ? unit(s.borrowed) : ""), show: (s) => (s.queue && s.borrowed > 0 ? <b class="hot">{unit(s.borrowed)}</b> : <span class="dim">–</span>) },
    { name: "Lent", class: "num", text: (s) => (s.queue ? "" : unit(s.borrowed)), show: (s) => (!s.queue && s.borrowed > 0 ? unit(s.borrowed) : <span class="dim">–</span>) },
    { name: "Idle", class: "num", text: (s) => unit(Math.max(0, s.nominal - s.used)), show: (s) => unit(Math.max(0, s.nominal - s.used)) },
    { name: "Share", class: "num", text: (s) => String(s.share), show: (s) => (s.share ? s.share : <span class="dim">–</span>) },
    { name: "Running", class: "num", text: (s) => String(s.running), show: (s) => amount(s.running) },
    { name: "Waiting", class: "num", text: (s) => String(s.waiting), show: (s) => (s.waiting ? <b class="wait">{amount(s.waiting)}</b> : <span class="dim">0</span>) },
  ];
  return (
    <>
      <Heading title="Queues" sub={`${plural(records.queues.size, "queue")} in ${plural(rows.filter((r) => !r.queue).length, "cohort")}`} />
      <Table caption="Cohorts and queues" columnsClass="t-queues" columns={columns} rows={rows} rowKey={(s) => (s.queue ? "q/" : "c/") + s.name}
        tools={<Select label="Of" value={resource} options={[cards, ...resources()]} change={(v) => setQuery("resource", v === cards ? "" : v)} />}
        empty={<Empty title="No queues yet">Make one: <code>elastic queue create team-a --quota nvidia.com/gpu=8</code></Empty>} />
      <Hours />
    </>
  );
}

// Hours shows all queues together over time.
function Hours() {
  const [hours, choice] = useHours();
  const { answer, error } = useAsked<Past>(`/api/history?${hours}`, 30_000);
  if (error && !answer) return <><div class="charts-head">{choice}</div><Failed error={error} what="the history of queues" /></>;
  if (!answer?.times || answer.times.length < 2) return <p class="dim pad">Use over time appears here as the server collects it: every 30 seconds, for six hours.</p>;
  const total = (of: "used" | "nominal" | "waiting" | "running" | "evicted" | "cost") =>
    answer.times!.map((_, i) => Object.values(answer.queues).reduce((sum, q) => sum + (q[of]?.[i] ?? 0), 0));
  const cost = total("cost");
  return (
    <>
    <div class="charts-head">{choice}</div>
    <div class="charts">
      <Chart title="Cards in use against quota" times={answer.times} lines={[{ name: "quota", class: "line-quiet", values: total("nominal"), step: true }, { name: "used", class: "line-main", values: total("used"), fill: true }]} />
      <Chart title="Jobs" times={answer.times} lines={[{ name: "running", class: "line-good", values: total("running") }, { name: "waiting", class: "line-wait", values: total("waiting"), fill: true }]} />
      <Chart title="Evictions" times={answer.times} lines={[{ name: "evictions", class: "line-bad", values: total("evicted"), step: true }]} />
      {cost.some((c) => c > 0) && <Chart title={`Cost of an hour, ${live.me?.currency ?? ""}`} times={answer.times} lines={[{ name: "cost", class: "line-main", values: cost, fill: true }]} />}
    </div>
    </>
  );
}

// useHours is how far back charts go: what the server has, or more where there is a Prometheus. It is in the link.
function useHours(): [string, ComponentChildren] {
  const { query } = useRoute();
  if (!live.me?.prometheus) return ["", null];
  const hours = query.get("hours") ?? "";
  return [hours ? `hours=${encodeURIComponent(hours)}` : "", <Select key="hours" label="Over" value={hours} options={[["", "6 hours"], ["24", "a day"], ["168", "a week"]]} change={(v) => setQuery("hours", v)} />];
}

export function QueueView({ name }: { name: string }) {
  const records = useLive();
  useTick(5000);
  const q = records.queues.get(name);
  const jobs = [...records.jobs.values()].filter((j) => j.queue === name);
  const line = useAsked<Place[]>(q ? `/api/queues/${encodeURIComponent(name)}/line?limit=200` : undefined, 5000, q?.pending);
  const [hours, choice] = useHours();
  const past = useAsked<Past>(`/api/history?queue=${encodeURIComponent(name)}&${hours}`, 30_000);
  if (!q) {
    return <><Heading title={name} /><Empty title="There is no such queue, or you may not see it"><a href="/queues">All queues</a></Empty></>;
  }
  const s = leaf(q, cards);
  const h = past.answer?.queues[name];
  const stopped = q.status === "Stopped";
  return (
    <>
      <Heading title={<><i class={`dot big ${queueClass(name)}`} />{name} <Tag title={q.why}>{q.status}</Tag></>}
        sub={<>{q.cohort ? `cohort ${q.cohort}` : "no cohort"} · {q.strategy} · {q.localQueues.length ? q.localQueues.slice(0, 5).join(", ") : "no LocalQueue leads here"}{q.why ? ` · ${q.why}` : ""}</>}>
        {stopped ? <button type="button" onClick={() => act({ verb: "resume-queue", name }, `Resume queue ${name}?`)}>Resume</button> : <>
          <button type="button" onClick={() => act({ verb: "stop-queue", name }, `Stop queue ${name}?`)}>Stop</button>
          <button type="button" class="danger" onClick={() => act({ verb: "drain-queue", name }, `Stop queue ${name} and what runs?`)}>Drain</button></>}
      </Heading>
      <dl class="stats">
        <Stat name="Cards used" value={amount(s.used)} note={`of ${amount(s.nominal)} nominal`} />
        <Stat name="Borrowed" value={amount(s.borrowed)} tone={s.borrowed ? "warn" : ""} note={s.borrowed ? "from its cohort" : "nothing"} />
        <Stat name="Fair share" value={q.share} note="weighted, 0 is within quota" />
        <Stat name="Running" value={amount(q.admitted)} note="workloads" />
        <Stat name="Waiting" value={amount(q.pending)} tone={q.pending ? "wait" : ""} note="workloads" />
      </dl>
      <QuotaTable q={q} />
      {past.answer?.times && h && past.answer.times.length > 1 && (
        <>
        <div class="charts-head">{choice}</div>
        <div class="charts">
          <Chart title="Cards in use against quota" times={past.answer.times} lines={[{ name: "quota", class: "line-quiet", values: h.nominal, step: true }, { name: "used", class: "line-main", values: h.used, fill: true }]} />
          <Chart title="Waiting, and evictions" times={past.answer.times} lines={[{ name: "waiting", class: "line-wait", values: h.waiting, fill: true }, { name: "evictions", class: "line-bad", values: h.evicted, step: true }]} />
          {h.cost?.some((c) => c > 0) && <Chart title={`Cost of an hour, ${live.me?.currency ?? ""}`} times={past.answer.times} lines={[{ name: "cost", class: "line-main", values: h.cost, fill: true }]} />}
        </div>
        </>
      )}
      {line.error ? <Failed error={line.error} what={`the order of ${name}`} /> : <Line places={line.answer ?? []} total={q.pending} loading={!line.answer} />}
      <RunningTable jobs={jobs.filter((j) => ["Running", "Starting", "Stopping"].includes(j.state))} />
    </>
  );
}

function QuotaTable({ q }: { q: Queue }) {
  const columns: Column<Quota>[] = [
    { name: "Flavor", class: "name", text: (r) => r.flavor, show: (r) => r.flavor },
    { name: "Resource", text: (r) => r.resource, show: (r) => r.resource },
    { name: "Used", class: "num", text: (r) => inUnit(r.resource, r.used), show: (r) => inUnit(r.resource, r.used) },
    { name: "Nominal", class: "num", text: (r) => inUnit(r.resource, r.nominal), show: (r) => inUnit(r.resource, r.nominal) },
    { name: "Borrowed", class: "num", text: (r) => inUnit(r.resource, r.borrowed), show: (r) => (r.borrowed ? <b class="hot">{inUnit(r.resource, r.borrowed)}</b> : <span class="dim">–</span>) },
    { name: "May borrow", class: "num", text: (r) => (r.borrows === undefined ? "all" : inUnit(r.resource, r.borrows)), show: (r) => (r.borrows === undefined ? "all" : inUnit(r.resource, r.borrows)) },
    { name: "May lend", class: "num", text: (r) => (r.lends === undefined ? "all" : inUnit(r.resource, r.lends)), show: (r) => (r.lends === undefined ? "all" : inUnit(r.resource, r.lends)) },
  ];
  return <Table caption="Quota" columnsClass="t-quota" columns={columns} rows={q.quotas} rowKey={(r) => `${r.flavor} ${r.resource}`} empty={<Empty title="This queue has no quota">Add resource groups to its ClusterQueue.</Empty>} />;
}

function Line({ places, total, loading }: { places: Place[]; total: number; loading: boolean }) {
  const job = (p: Place): Job | undefined => live.records.jobs.get(`${p.namespace}/${p.name}`);
  const why = (p: Place): string => p.message || job(p)?.message || (p.reason ? words(p.reason) : "");
  const columns: Column<Place>[] = [
    { name: "#", class: "num", text: (p) => String(p.position), show: (p) => p.position },
    { name: "Job", class: "name", text: (p) => `${p.namespace}/${job(p)?.job ?? p.name}`, show: (p) => <JobLink job={job(p)} namespace={p.namespace} name={p.name} /> },
    { name: "Cards", class: "num", text: (p) => amount(job(p)?.cards ?? NaN), show: (p) => amount(job(p)?.cards ?? NaN) },
    { name: "Priority", class: "num", text: (p) => String(p.priority), show: (p) => p.priority },
    { name: "Waiting", class: "num", text: (p) => since(Date.parse(p.created) / 1000), show: (p) => since(Date.parse(p.created) / 1000) },
    { name: "Starts", text: (p) => starts(p.startsAt), show: (p) => <span class={p.startsAt ? "" : "dim"} title={p.startsAt ? clock(new Date(p.startsAt)) : "no end is known of what it waits for"}>{starts(p.startsAt)}</span> },
    { name: "Why it waits", class: "wide why", text: why, show: (p) => <span title={why(p)}>{why(p)}</span> },
  ];
  return <Table caption={total > places.length && places.length ? `Waiting, the first ${places.length} of ${total.toLocaleString("en")}` : "Waiting, in order"} columnsClass="t-line" columns={columns} rows={places} rowKey={(p) => `${p.namespace}/${p.name}`}
    empty={loading ? <p class="dim pad">Asking the queue …</p> : <Empty title="Nothing waits in this queue">What is submitted now starts as soon as its cards are free. <a href="/submit">Submit a job</a></Empty>} />;
}

export function JobLink({ job, namespace, name }: { job: Job | undefined; namespace: string; name: string }) {
  return <a class="job" href={link.job(namespace, name)}><span class="dim">{namespace}/</span>{job?.job ?? name}</a>;
}

function RunningTable({ jobs }: { jobs: Job[] }) {
  jobs.sort((a, b) => (a.admitted ?? 0) - (b.admitted ?? 0));
  const until = (j: Job) => (j.ends ? `in ${span(j.ends - now())}` : "not said");
  const columns: Column<Job>[] = [
    { name: "Job", class: "name", text: (j) => `${j.namespace}/${j.job ?? j.name}`, show: (j) => <JobLink job={j} namespace={j.namespace} name={j.name} /> },
    { name: "State", text: (j) => j.state, show: (j) => <Tag>{j.state}</Tag> },
    { name: "Cards", class: "num", text: (j) => amount(j.cards), show: (j) => amount(j.cards) },
    { name: "Pods", class: "num", text: (j) => String(j.pods), show: (j) => j.pods },
    { name: "Priority", class: "num", text: (j) => String(j.priority), show: (j) => j.priority },
    { name: "Runs for", class: "num", text: (j) => (j.admitted ? since(j.admitted) : ""), show: (j) => (j.admitted ? since(j.admitted) : "–") },
    { name: "Ends at the latest", text: until, show: (j) => <span class={j.ends ? "" : "dim"}>{until(j)}</span> },
  ];
  return <Table caption="Running" columnsClass="t-running" columns={columns} rows={jobs} rowKey={(j) => `${j.namespace}/${j.name}`} empty={<Empty title="Nothing runs from this queue">{null}</Empty>} />;
}

export { Copy };
