// Submit a job: a form that writes a manifest, the check, then the job.
import { useState } from "preact/hooks";
import { act } from "./act";
import { plural, starts, words } from "./format";
import { Empty, Heading } from "./parts";
import { go, link } from "./router";
import { ask, live, type Refused, useLive } from "./store";
import type { Outcome } from "./types";

interface Form { name: string; namespace: string; queue: string; image: string; command: string; pods: string; kind: "whole" | "share"; cards: string; core: string; memory: string; minutes: string; priority: string }

function manifest(f: Form): string {
  const limits = f.kind === "whole"
    ? (Number(f.cards) > 0 ? [`nvidia.com/gpu: "${f.cards}"`] : [])
    : [`elasticgpu.io/gpu-core: "${f.core}"`, `elasticgpu.io/gpu-memory: "${f.memory}"`];
  const quote = (s: string) => JSON.stringify(s);
  return [
    "apiVersion: batch/v1", "kind: Job", "metadata:", `  name: ${f.name}`, `  namespace: ${f.namespace}`, "  labels:", `    kueue.x-k8s.io/queue-name: ${f.queue}`,
    ...(f.priority ? [`    kueue.x-k8s.io/priority-class: ${f.priority}`] : []),
    ...(Number(f.minutes) > 0 ? [`    kueue.x-k8s.io/max-exec-time-seconds: "${Math.round(Number(f.minutes) * 60)}"`] : []),
    "spec:", "  suspend: true", `  parallelism: ${f.pods}`, `  completions: ${f.pods}`, "  template:", "    spec:", "      restartPolicy: Never", "      containers:",
    "        - name: main", `          image: ${quote(f.image)}`, ...(f.command ? [`          command: ["sh", "-c", ${quote(f.command)}]`] : []),
    ...(limits.length ? ["          resources:", "            limits:", ...limits.map((l) => `              ${l}`)] : []), "",
  ].join("\n");
}

export function Submit() {
  useLive();
  const locals = [...live.records.queues.values()].flatMap((q) => q.localQueues).sort();
  const first = (locals[0] ?? "default/main").split("/");
  const [form, setForm] = useState<Form>({ name: "train", namespace: "", queue: "", image: "busybox", command: "sleep 60", pods: "1", kind: "whole", cards: "1", core: "50", memory: "8192", minutes: "", priority: "" });
  const [text, setText] = useState<string>();
  const [checked, setChecked] = useState<{ text: string; outcome: Outcome }>();
  const [error, setError] = useState<Refused>();
  const filled = { ...form, namespace: form.namespace || (first[0] ?? ""), queue: form.queue || (first[1] ?? "") };
  const yaml = text ?? manifest(filled);
  const set = (name: keyof Form) => (e: { currentTarget: { value: string } }) => {
    setForm({ ...form, [name]: e.currentTarget.value });
    setText(undefined);
  };
  const check = async () => {
    setError(undefined);
    try {
      setChecked({ text: yaml, outcome: await ask<Outcome>("/api/act", { verb: "submit", namespace: filled.namespace, manifest: yaml }) });
    } catch (e) {
      setChecked(undefined);
      setError(e as Refused);
    }
  };
  const good = checked?.text === yaml ? checked.outcome : undefined;
  const send = () => act({ verb: "submit", namespace: filled.namespace, manifest: yaml }, "Submit this job?", () => go(`/jobs?find=${encodeURIComponent(filled.name)}`));
  const input = (label: string, name: keyof Form, type = "text", more: Record<string, unknown> = {}) => (
    <label class="field"><span>{label}</span><input type={type} value={filled[name]} onInput={set(name)} {...more} /></label>
  );
  return (
    <>
      <Heading title="Submit a job" sub="First the check, which creates nothing: would it start now, where, and what would it preempt" />
      <div class="halves submit">
        <form class="form panel" onSubmit={(e) => { e.preventDefault(); void check(); }}>
          {input("Name", "name")}
          <label class="field"><span>Queue</span>
            <select value={`${filled.namespace}/${filled.queue}`} onChange={(e) => { const [namespace = "", queue = ""] = e.currentTarget.value.split("/"); setForm({ ...form, namespace, queue }); setText(undefined); }}>
              {!locals.includes(`${filled.namespace}/${filled.queue}`) && <option value={`${filled.namespace}/${filled.queue}`}>{`${filled.namespace}/${filled.queue}`}</option>}
              {locals.map((l) => <option key={l} value={l}>{l}</option>)}
            </select>
          </label>
          {input("Image", "image")}
          {input("Command", "command")}
          {input("Pods", "pods", "number", { min: 1 })}
          <label class="field"><span>Each pod has</span>
            <select value={form.kind} onChange={(e) => { setForm({ ...form, kind: e.currentTarget.value as Form["kind"] }); setText(undefined); }}><option value="whole">whole cards</option><option value="share">a share of a card</option></select>
          </label>
          {form.kind === "whole" ? input("Cards", "cards", "number", { min: 0 }) : <>{input("Compute, %", "core", "number", { min: 1, max: 99 })}{input("Memory, MiB", "memory", "number", { min: 1 })}</>}
          {input("Longest run, minutes", "minutes", "number", { min: 0, placeholder: "not said" })}
          {input("Priority class", "priority", "text", { placeholder: "none" })}
          <div class="actions">
            <button type="submit" class="primary">Check</button>
            <button type="button" disabled={!good} onClick={send}>Submit …</button>
          </div>
        </form>
        <div>
          <label class="field manifest"><span>Manifest: write it by hand, or paste any kind of job</span>
            <textarea spellcheck={false} value={yaml} rows={22} onInput={(e) => setText(e.currentTarget.value)} />
          </label>
        </div>
      </div>
      {error && <div class="failed" role="alert"><strong>{error.denied ? "You may not submit this." : "This would be refused."}</strong><span>{error.message}</span></div>}
      {good ? <Planned outcome={good} /> : !error && <Empty title="Not checked yet">Press Check: the API server and the queue are asked, and nothing is created.</Empty>}
    </>
  );
}

function Planned({ outcome }: { outcome: Outcome }) {
  return (
    <div class="explanation" data-plan role="status">
      {outcome.says?.map((s) => <section class="panel" key={s}><p>{s}</p></section>)}
      {outcome.plans?.map(({ job, headline, because, plan }) => (
        <section class={`panel ${plan.startsNow ? "good" : "why-panel"}`} key={job}>
          <h2>{headline}</h2>
          {!plan.startsNow && (because || plan.message) && <p><strong>{because ?? words(plan.reason ?? "")}</strong> <span class="dim">{plan.message}</span></p>}
          {plan.podSets?.map((s) => <p key={s.name}>{plural(s.count, "pod")} of {s.name}{s.nodes?.map((n) => <span key={n.name}> · {n.pods} on <a href={link.node(n.name)}>{n.name}</a>{n.cards?.length ? ` (cards ${n.cards.join(",")})` : ""}</span>)}</p>)}
          {!!plan.preemptionTargets?.length && <p><b>Would preempt:</b> {plan.preemptionTargets.map((t) => t.job ?? t.name ?? `a job in ${t.clusterQueue}`).join(", ")}</p>}
          {!plan.startsNow && <p class="dim">Starts {starts(plan.startsAt)}</p>}
          {plan.suggestions?.map((s) => <p key={s} class="dim">{s}</p>)}
        </section>
      ))}
    </div>
  );
}
