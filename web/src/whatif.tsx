// What if: sliders for quota, and what the queue says would start by them. Nothing is written.
import { useEffect, useState } from "preact/hooks";
import { amount, byName, clock, inUnit, plural } from "./format";
import { type Column, Empty, Failed, Heading, QueueName, Select, Table } from "./parts";
import { link, setQuery, useRoute } from "./router";
import { ask, live, type Refused, useLive } from "./store";
import type { PlannedStart, QuotaPlan } from "./types";

// Slider is one quota of a queue. Its key in the address is queue/flavor/resource.
interface Slider { key: string; queue: string; flavor: string; resource: string; nominal: number; used: number; value: number }

const isCards = (resource: string): boolean => /gpu/.test(resource);

function sliders(query: URLSearchParams, resource: string): Slider[] {
  const list: Slider[] = [];
  for (const q of live.records.queues.values()) {
    for (const { flavor, resource: of, nominal, used } of q.quotas) {
      const key = `${q.name}/${flavor}/${of}`;
      const asked = query.get(key);
      if (of === resource || asked !== null) list.push({ key, queue: q.name, flavor, resource: of, nominal, used, value: asked === null ? nominal : Math.max(0, Number(asked) || 0) });
    }
  }
  return list.sort((a, b) => byName(a.key, b.key));
}

// quantity as Kubernetes writes it: exact, without exponents.
const quantity = (n: number): string => (Number.isInteger(n) ? n.toFixed(0) : `${Math.round(n * 1000)}m`);

export function WhatIf() {
  useLive();
  const { query } = useRoute();
  const names = [...new Set([...live.records.queues.values()].flatMap((q) => q.quotas.map((x) => x.resource)))].sort(byName);
  const resource = query.get("resource") ?? names.find((n) => n === "nvidia.com/gpu") ?? names.find(isCards) ?? names[0] ?? "";
  const within = query.get("within") ?? "24h";
  const all = sliders(query, resource);
  const changed = all.filter((s) => s.value !== s.nominal);
  const body = JSON.stringify({ within, quotas: changed.map((s) => ({ clusterQueue: s.queue, flavor: s.flavor, resource: s.resource, nominal: quantity(s.value) })) });
  const [state, set] = useState<{ body?: string; plan?: QuotaPlan; error?: Refused }>({});
  useEffect(() => {
    if (!changed.length) return;
    const end = new AbortController();
    const timer = window.setTimeout(() => {
      ask<QuotaPlan>("/api/quota-plan", JSON.parse(body), end.signal).then((plan) => set({ body, plan }), (error: Refused) => { if (!end.signal.aborted) set({ body, error }); });
    }, 300);
    return () => { clearTimeout(timer); end.abort(); };
  }, [body]);
  const slide = (s: Slider, value: number) => setQuery(s.key, value === s.nominal ? "" : String(value));
  const reset = () => changed.forEach((s) => setQuery(s.key, ""));
  const plan = changed.length ? state.plan : undefined;
  return (
    <>
      <Heading title="What if" sub="Other quotas, and what would start by them. The queue itself answers; nothing is written">
        <Select label="Of" value={resource} options={names} change={(v) => setQuery("resource", v)} />
        <Select label="Within" value={within} options={[["1h", "an hour"], ["8h", "8 hours"], ["24h", "a day"], ["168h", "a week"]]} change={(v) => setQuery("within", v === "24h" ? "" : v)} />
        {changed.length > 0 && <button type="button" onClick={reset}>As it is</button>}
      </Heading>
      {all.length === 0 && <Empty title="No quota to change">There is no queue with a quota of this, or you may not see one. <a href="/queues">Queues</a></Empty>}
      <div class="sliders" role="group" aria-label="Nominal quotas">
        {all.map((s) => <Row key={s.key} s={s} slide={slide} />)}
      </div>
      {changed.length > 0 && state.error && state.body === body && <Failed error={state.error} what="what the queue would do" />}
      {changed.length === 0 && all.length > 0 && <Empty title="Nothing is changed yet">Move a slider: the queue is asked what would start, and nothing is written.</Empty>}
      {plan && <Answer plan={plan} changed={changed} old={state.body !== body} within={within} />}
    </>
  );
}

function Row({ s, slide }: { s: Slider; slide: (s: Slider, value: number) => void }) {
  const most = Math.max(s.value, 2 * s.nominal, s.nominal + (isCards(s.resource) ? 16 : 1), s.used);
  const step = most <= 10_000 ? 1 : Math.pow(10, Math.floor(Math.log10(most)) - 2);
  const delta = s.value - s.nominal;
  return (
    <label class="slider">
      <span class="quota-of"><QueueName name={s.queue} /> <span class="dim">{s.flavor}</span></span>
      <input type="range" min={0} max={most} step={step} value={s.value} aria-valuetext={`${inUnit(s.resource, s.value)} of ${s.resource} for ${s.queue}`}
        onInput={(e) => slide(s, Number(e.currentTarget.value))} />
      <output>{inUnit(s.resource, s.value)}{delta !== 0 && <b class={delta > 0 ? "good" : "bad"}> {delta > 0 ? "+" : "−"}{inUnit(s.resource, Math.abs(delta))}</b>} <span class="dim">{inUnit(s.resource, s.used)} used</span></output>
    </label>
  );
}

const spans: Record<string, string> = { "1h": "within an hour", "8h": "within 8 hours", "24h": "within a day", "168h": "within a week" };

function Answer({ plan, changed, old, within }: { plan: QuotaPlan; changed: Slider[]; old: boolean; within: string }) {
  const words = changed.map((s) => `${s.queue} had ${amount(Math.abs(s.value - s.nominal))} ${s.value > s.nominal ? "more" : "less"} ${s.resource}`).join(" and ");
  const more = plan.wouldStart - plan.startNow;
  const start = more === 0 ? "as many jobs would start" : `${plural(Math.abs(more), "job")} ${more > 0 ? "more" : "less"} would start`;
  return (
    <div class={old ? "old" : ""} data-what-if data-old={old}>
      <section class={`panel ${more > 0 ? "good" : "why-panel"}`} role="status">
        <h2>If {words}, {start} {spans[within] ?? ""}: {plan.wouldStart} of {plan.pending} that wait, instead of {plan.startNow}.</h2>
        <p class="dim">By the run times that are known, without preemption and without jobs that come later.{plan.complete ? "" : " More wait than were looked at."}</p>
      </section>
      <Starts caption="Sooner, or only so" list={plan.sooner ?? []} />
      <Starts caption="Later, or not at all" list={plan.later ?? []} />
    </div>
  );
}

function Starts({ caption, list }: { caption: string; list: PlannedStart[] }) {
  if (!list.length) return null;
  const name = (s: PlannedStart) => (s.name ? `${s.namespace}/${s.job?.split("/")[1] ?? s.name}` : "a job of namespaces you may not see");
  const when = (at: string | undefined) => (at ? (Date.parse(at) <= Date.now() + 5000 ? "now" : clock(new Date(at))) : "not in that time");
  const columns: Column<PlannedStart>[] = [
    { name: "Job", class: "name", text: name, show: (s) => (s.name && s.namespace ? <a class="job" href={link.job(s.namespace, s.name)}>{name(s)}</a> : <span class="dim">{name(s)}</span>) },
    { name: "Queue", text: (s) => s.clusterQueue ?? "", show: (s) => <QueueName name={s.clusterQueue} /> },
    { name: "Priority", class: "num", text: (s) => String(s.priority), show: (s) => s.priority },
    { name: "Starts as it is", text: (s) => when(s.startsAt), show: (s) => <span class={s.startsAt ? "" : "dim"}>{when(s.startsAt)}</span> },
    { name: "Would start", text: (s) => when(s.wouldStart), show: (s) => <span class={s.wouldStart ? "" : "dim"}>{when(s.wouldStart)}</span> },
  ];
  return <Table caption={caption} columnsClass="t-starts" columns={columns} rows={list} rowKey={(s) => `${s.namespace ?? ""}/${s.name ?? list.indexOf(s)}`} />;
}
