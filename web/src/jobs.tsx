// Jobs: all of them, and one with its explanation.
import { useEffect, useRef, useState } from "preact/hooks";
import { act } from "./act";
import { askFor } from "./dialog";
import { amount, clock, plural, since, starts, words } from "./format";
import { type Column, Empty, Failed, Heading, QueueName, Search, Select, Stat, Table, Tag, useTick } from "./parts";
import { JobLink } from "./queues";
import { link, setQuery, useRoute } from "./router";
import { derive, live, useAsked, useLive } from "./store";
import type { Instance, Job, JobView as View, Standing, WorkloadRef } from "./types";

const rank: Record<string, number> = { Stopping: 0, Starting: 1, Running: 2, Waiting: 3, "Held back": 4, Failed: 5, Finished: 6 };
const sorted = derive(() => live.changed.jobs, () =>
  [...live.records.jobs.values()].sort((a, b) => (rank[a.state] ?? 9) - (rank[b.state] ?? 9) || b.priority - a.priority || a.created - b.created));

export function Jobs() {
  const records = useLive();
  useTick(10_000);
  const { query } = useRoute();
  const find = query.get("find") ?? "";
  const state = query.get("state") ?? "";
  const queue = query.get("queue") ?? "";
  const rows = sorted().filter((j) =>
    (!state || j.state === state) && (!queue || j.queue === queue) && (!find || `${j.namespace}/${j.job ?? ""} ${j.name}`.includes(find)));
  const columns: Column<Job>[] = [
    { name: "Job", class: "name", text: (j) => `${j.namespace}/${j.job ?? j.name}`, show: (j) => <JobLink job={j} namespace={j.namespace} name={j.name} /> },
    { name: "Kind", class: "dim", text: (j) => j.kind ?? "", show: (j) => j.kind ?? "–" },
    { name: "State", text: (j) => j.state, show: (j) => <Tag>{j.state}</Tag> },
    { name: "Queue", text: (j) => j.queue ?? "", show: (j) => <QueueName name={j.queue} /> },
    { name: "Cards", class: "num", text: (j) => amount(j.cards), show: (j) => amount(j.cards) },
    { name: "Priority", class: "num", text: (j) => String(j.priority), show: (j) => j.priority },
    { name: "For", class: "num", text: (j) => since(j.since), show: (j) => since(j.since) },
    { name: "Why", class: "wide why", text: (j) => j.message ?? "", show: (j) => (j.state === "Running" || j.state === "Finished" ? <span class="dim">–</span> : <span title={j.message}>{j.message}</span>) },
  ];
  return (
    <>
      <Heading title="Jobs" sub="All jobs in queues that you may see"><a class="button primary" href="/submit">Submit a job</a></Heading>
      <div class="filters" role="search" aria-label="Jobs">
        <Search label="Find" value={find} change={(v) => setQuery("find", v)} />
        <Select label="State" value={state} options={[["", "all"], ...Object.keys(rank)]} change={(v) => setQuery("state", v)} />
        <Select label="Queue" value={queue} options={[["", "all"], ...[...records.queues.keys()].sort()]} change={(v) => setQuery("queue", v)} />
      </div>
      <Table caption="Jobs" columnsClass="t-jobs" columns={columns} rows={rows} rowKey={(j) => `${j.namespace}/${j.name}`}
        empty={records.jobs.size ? <Empty title="No job is like that">Change the filters above.</Empty> :
          <Empty title="No jobs yet">A job with the label <code>kueue.x-k8s.io/queue-name</code> appears here. <a href="/submit">Submit one</a></Empty>} />
    </>
  );
}

export function JobView({ namespace, name }: { namespace: string; name: string }) {
  const records = useLive();
  useTick(5000);
  const row = records.jobs.get(`${namespace}/${name}`);
  const asked = useAsked<View>(`/api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, 5000, `${row?.state} ${row?.reason}`);
  const view = asked.answer;
  const record = row ?? view?.record;
  if (!record && asked.error) return <><Heading title={name} /><Failed error={asked.error} what={`job ${namespace}/${name}`} /></>;
  if (!record) return <Heading title={name} />;
  const title = record.job ?? record.name;
  const target = { namespace, name };
  const ended = record.state === "Finished" || record.state === "Failed";
  return (
    <>
      <Heading title={<>{title} <Tag>{record.state}</Tag></>} sub={<>{record.kind ?? "workload"} in {namespace} · queue <QueueName name={record.queue} /> · priority {record.class ? `${record.class} (${record.priority})` : record.priority}</>}>
        {!ended && (record.state === "Held back"
          ? <button type="button" onClick={() => act({ verb: "resume", ...target }, `Resume ${title}?`, asked.again)}>Resume</button>
          : <button type="button" onClick={() => act({ verb: "suspend", ...target }, `Suspend ${title}?`, asked.again)}>Suspend</button>)}
        {!ended && <Priority target={target} title={title} done={asked.again} />}
        <button type="button" class="danger" onClick={() => act({ verb: "delete", ...target }, `Delete ${title}?`, () => history.back())}>Delete</button>
      </Heading>
      {view && <p class={`headline ${record.state === "Waiting" ? "wait" : ""}`} data-headline>{view.headline}</p>}
      <dl class="stats">
        <Stat name="Cards" value={amount(record.cards)} note={view?.asks.map((a) => `${a.count} × ${a.name}`).join(", ")} />
        <Stat name={ended ? "Ended" : record.state === "Running" ? "Runs for" : "Waits for"} value={since(record.state === "Running" ? record.admitted ?? record.since : ended ? record.since : record.created)} note={ended ? "ago" : `created ${clock(new Date(record.created * 1000))}`} />
        {!ended && record.state !== "Running" && <Stat name="Starts" value={<span class="text">{starts(view?.answer?.standing?.startsAt)}</span>} note={view?.answer?.standing?.startsAt ? clock(new Date(view.answer.standing.startsAt)) : "no end is known of what it waits for"} />}
        {!ended && record.state !== "Running" && <Stat name="Position" value={view?.answer?.standing?.position ?? "–"} note={record.queue ? `in ${record.queue}` : ""} />}
        <Cost record={record} />
        {!!record.evicted && <Stat name="Evicted" value={record.evicted} tone="warn" note="times" />}
      </dl>
      {asked.error && <Failed error={asked.error} what="the explanation" />}
      {view?.answer?.standing && <Explanation view={view} standing={view.answer.standing} />}
      {view?.problems?.map((p) => <p class="failed" key={p}>{p}</p>)}
      <div class="halves">
        {view && <Timeline view={view} />}
        <div>
          {view?.info && <Pods view={view} namespace={namespace} />}
        </div>
      </div>
    </>
  );
}

function Priority(p: { target: { namespace: string; name: string }; title: string; done: () => void }) {
  const change = (value: string) => act({ verb: "priority", ...p.target, value }, `Change the priority of ${p.title}?`, p.done);
  return <button type="button" onClick={() => askFor("WorkloadPriorityClass", "What changes is shown before it is done.", "", (v) => { if (v) change(v); })}>Priority</button>;
}

// Cost is what the nodes cost that were bought for it, in all its runs; otherwise the card-hours of the present one, and money where prices of cards
// are known.
function Cost({ record }: { record: Job }) {
  const ended = record.state === "Finished" || record.state === "Failed";
  const ran = record.admitted ? ((ended ? record.since : Date.now() / 1000) - record.admitted) / 3600 : 0;
  const hourly = record.pricePerHour ?? 0;
  if (hourly || record.paid) return <Stat name="Cost" value={`${((record.paid ?? 0) + Math.max(0, ran) * hourly).toFixed(2)} USD`} note={hourly ? `all runs; its nodes at ${hourly.toFixed(2)} an hour` : "nodes of earlier runs"} />;
  if (!record.admitted) return null;
  const hours = ran * record.cards;
  const prices = live.me?.prices ?? {};
  const model = modelsOf(record)[0];
  const price = model === undefined ? undefined : prices[model];
  if (price === undefined) return <Stat name="Cost" value={amount(hours)} note="card-hours of this run" />;
  return <Stat name="Cost" value={`${(hours * price).toFixed(2)} ${live.me?.currency ?? ""}`} note={`${amount(hours)} card-hours of ${model}`} />;
}

// modelsOf the cards that a job's pods have now.
function modelsOf(record: Job): string[] {
  const models = new Set<string>();
  for (const n of live.records.nodes.values()) {
    for (const c of n.cards) if (c.shares?.some((s) => s.workload === record.name && s.pod.startsWith(`${record.namespace}/`))) models.add(c.model ?? n.model ?? "");
  }
  return [...models];
}

function Refs({ title, list, more }: { title: string; list: WorkloadRef[] | undefined; more?: number }) {
  if (!list?.length) return null;
  const hidden = new Map<string, number>();
  for (const r of list) if (!r.name) hidden.set(r.clusterQueue ?? "", (hidden.get(r.clusterQueue ?? "") ?? 0) + 1);
  return (
    <section class="panel">
      <h2>{title}</h2>
      <ul class="refs">
        {!!more && more > 0 && <li class="dim">{more} before these</li>}
        {list.filter((r) => r.name).map((r) => (
          <li key={`${r.namespace}/${r.name}`}>
            <a href={link.job(r.namespace ?? "", r.name ?? "")}>{r.job ?? r.name}</a>
            <span class="dim">{r.namespace} · <QueueName name={r.clusterQueue} /> · priority {r.priority}{r.rule ? ` · by the rule ${words(r.rule)}` : ""}</span>
          </li>
        ))}
        {[...hidden].map(([q, n]) => <li key={q} class="dim">{plural(n, "job")} of namespaces you may not see, in {q}</li>)}
      </ul>
    </section>
  );
}

function Explanation({ view, standing: x }: { view: View; standing: Standing }) {
  const waits = !["Admitted", "Finished"].includes(x.state);
  const requests = view.asks.map((a) => `${a.count} × (${Object.entries(a.requests).map(([k, v]) => `${v} ${k}`).join(", ")})`).join("; ");
  return (
    <div class="explanation" data-explanation>
      {waits && (x.reason || x.message) && (
        <section class="panel why-panel">
          <h2>Why it waits</h2>
          <p><strong>{view.because ?? words(x.reason ?? "")}</strong>{x.reason && <code>{x.reason}</code>}</p>
          {x.message && <p class="dim">{x.message}</p>}
        </section>
      )}
      <section class="panel">
        <h2>What it asks</h2>
        <p>{requests}</p>
        {x.podSets?.map((s) => (
          <p key={s.name} class="dim">{waits ? "would get" : "has"} {plural(s.count, "pod")} of {s.name}{s.flavors ? `: ${Object.entries(s.flavors).map(([r, f]) => `${r} from ${f}`).join(", ")}` : ""}
            {s.nodes?.slice(0, 8).map((n) => <span key={n.name}> · {n.pods} on <a href={link.node(n.name)}>{n.name}</a>{n.cards?.length ? ` (cards ${n.cards.join(",")})` : ""}</span>)}
            {(s.nodes?.length ?? 0) > 8 ? ` and ${(s.nodes?.length ?? 0) - 8} more` : ""}</p>
        ))}
      </section>
      {!!x.missing?.length && (
        <section class="panel">
          <h2>What is missing</h2>
          <ul class="missing">
            {x.missing.map((m, i) => (
              <li key={i}>
                <b>{m.amount ? `${m.amount} ${m.resource}` : m.reason === "TopologyPlacementFailed" ? "nodes and cards for all pods at once" : "a flavor for its pods"}</b>
                <span class="dim">{m.cohort ? <>of quota at cohort {m.cohort}</> : m.clusterQueue ? <>of quota at <QueueName name={m.clusterQueue} /></> : null}{m.flavor ? ` · flavor ${m.flavor}` : ""}{m.podSet ? ` · pod set ${m.podSet}` : ""}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
      <Refs title="Who is ahead" list={x.ahead} more={(x.position ?? 0) - 1 - (x.ahead?.length ?? 0)} />
      <Refs title="Who holds it" list={x.heldBy} />
      <Refs title="Whom it preempts" list={x.preemptionTargets} />
      {!!x.checks?.filter((c) => waits || c.state !== "Ready").length && (
        <section class="panel"><h2>Admission checks</h2><ul class="refs">{x.checks.map((c) => <li key={c.name}>{c.name} <Tag>{c.state}</Tag><span class="dim">{c.message}</span></li>)}</ul></section>
      )}
      {!!x.suggestions?.length && waits && (
        <section class="panel help"><h2>What would help</h2><ul class="refs">{x.suggestions.map((s) => <li key={s}>{s}</li>)}</ul></section>
      )}
      {!!view.answer?.warnings?.length && (
        <section class="panel"><h2>Warnings of its pods</h2><ul class="refs">{view.answer.warnings.map((s) => <li key={s}>{s}</li>)}</ul></section>
      )}
      {view.answer?.note && <p class="dim">{view.answer.note}</p>}
    </div>
  );
}

function Timeline({ view }: { view: View }) {
  return (
    <section class="timeline">
      <h2>Timeline</h2>
      <ol>
        {view.timeline.map((m, i) => (
          <li key={i} class={m.warning ? "warning" : ""}>
            <time dateTime={m.at} title={new Date(m.at).toISOString()}>{clock(new Date(m.at))}</time>
            <div><strong>{words(m.what)}</strong>{(m.count ?? 0) > 1 && <span class="dim"> × {m.count}</span>}{m.about !== "workload" && <span class="dim"> {m.about}</span>}
              {m.message && <p>{m.message}</p>}</div>
          </li>
        ))}
      </ol>
    </section>
  );
}

// loadOf the cards a pod has a share of.
function loadOf(pod: string): string {
  const loads: string[] = [];
  for (const n of live.records.nodes.values()) {
    for (const c of n.cards) if (c.load !== undefined && c.shares?.some((s) => s.pod === pod)) loads.push(`${c.load} %`);
  }
  return loads.join(", ");
}

function Pods({ view, namespace }: { view: View; namespace: string }) {
  const { query } = useRoute();
  const pods = view.info?.instances ?? [];
  const chosen = query.get("log") ?? "";
  const columns: Column<Instance>[] = [
    { name: "Pod", class: "name", text: (p) => p.name, show: (p) => p.name },
    { name: "State", text: (p) => p.status, show: (p) => <Tag>{p.status}</Tag> },
    { name: "Node", text: (p) => p.node ?? "", show: (p) => (p.node ? <a href={link.node(p.node)}>{p.node}</a> : <span class="dim">–</span>) },
    { name: "Cards", class: "num", text: (p) => p.cards ?? "", show: (p) => p.cards || <span class="dim">–</span> },
    { name: "Load", class: "num", text: (p) => loadOf(`${namespace}/${p.name}`), show: (p) => loadOf(`${namespace}/${p.name}`) || <span class="dim">–</span> },
    { name: "Log", text: () => "", show: (p) => <button type="button" class="small ghost" aria-pressed={chosen === p.name} onClick={() => setQuery("log", chosen === p.name ? "" : p.name)}>{chosen === p.name ? "Hide" : "Log"}</button> },
  ];
  return (
    <>
      <Table caption="Pods" columnsClass="t-pods" columns={columns} rows={pods} rowKey={(p) => p.name} empty={<Empty title="No pods">They appear when the job starts.</Empty>} />
      {chosen && <Log namespace={namespace} pod={chosen} />}
    </>
  );
}

const mostLines = 2000;

// Log follows what a pod writes; older lines go.
function Log({ namespace, pod }: { namespace: string; pod: string }) {
  const at = useRef<HTMLPreElement>(null);
  const [lines, setLines] = useState<string[]>([]);
  const [error, setError] = useState("");
  useEffect(() => {
    const end = new AbortController();
    setLines([]);
    setError("");
    const read = async () => {
      const response = await fetch(`/api/logs/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}?follow=1`, { signal: end.signal });
      if (!response.ok || !response.body) {
        setError(((await response.json()) as { error: string }).error);
        return;
      }
      const from = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await from.read();
        if (done) break;
        const parts = (rest + value).split("\n");
        rest = parts.pop() ?? "";
        if (parts.length) setLines((l) => [...l, ...parts].slice(-mostLines));
      }
      if (rest) setLines((l) => [...l, rest]);
    };
    read().catch((e: unknown) => { if (!end.signal.aborted) setError(String(e)); });
    return () => end.abort();
  }, [namespace, pod]);
  useEffect(() => { const e = at.current; if (e && e.scrollHeight - e.scrollTop - e.clientHeight < 120) e.scrollTop = e.scrollHeight; }, [lines]);
  return (
    <section class="log">
      <h2>Log of {pod}</h2>
      {error ? <p class="failed">{error}</p> : <pre ref={at} tabIndex={0}>{lines.length ? lines.join("\n") : "Nothing written yet."}</pre>}
    </section>
  );
}
