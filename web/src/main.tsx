import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { askFor } from "./dialog";
import { clock } from "./format";
import { Jobs, JobView } from "./jobs";
import { NodeView } from "./nodes";
import { Overview } from "./overview";
import { Empty, Heading } from "./parts";
import { Queues, QueueView } from "./queues";
import { follow, go, useRoute } from "./router";
import { connect, live, namespaces, signIn, signOut, useLive, whoAmI } from "./store";
import { Simulation } from "./simulation";
import { Submit } from "./submit";
import { WhatIf } from "./whatif";
import "./style.css";

const views: [string, string, string, string][] = [
  ["/", "Overview", "o", "M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z"],
  ["/queues", "Queues", "q", "M3 4h14v3H3zM6 8.5h11v3H6zM6 13h11v3H6z"],
  ["/jobs", "Jobs", "j", "M3 4h14v2H3zM3 9h14v2H3zM3 14h9v2H3z"],
  ["/what-if", "What if", "w", "M3 6h7V4h3v6h-3V8H3zM15 6h2v2h-2zM3 13h2v-2h3v6H5v-2H3zM10 13h7v2h-7z"],
  ["/simulation", "Simulation", "i", "M3 16V4h2v10h12v2zM7 12l3-5 3 2 3-5 1.6 1-4 6.6-3-2L8.7 13z"],
  ["/submit", "Submit", "s", "M10 2l6 6h-4v6H8V8H4zM3 16h14v2H3z"],
];

function Page() {
  const { path } = useRoute();
  useLive();
  useKeys();
  useEffect(() => { document.title = `${path[path.length - 1] ?? "Overview"} · Elastic`; }, [location.pathname]);
  if (live.link === "refused") return <Refusal />;
  const current = `/${path[0] ?? ""}`;
  return (
    <div class="page" onClick={follow}>
      <a class="skip" href="#main">Skip to the view</a>
      <nav aria-label="Views">
        <a class="brand" href="/"><svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M8 9h16v3.4H12v2.1h9v3H12v2.1h12V23H8z" /></svg><span>Elastic</span></a>
        {views.map(([to, name, key, icon]) => (
          <a key={to} href={to} aria-current={current === to || (to === "/" && current === "/nodes") ? "page" : undefined} title={`g ${key}`}>
            <svg viewBox="0 0 20 20" aria-hidden="true"><path d={icon} /></svg><span>{name}</span>
          </a>
        ))}
        <div class="who-am-i">
          <LinkState />
          {live.me && <p title={`${live.me.cluster} as ${live.me.user}`}><b>{live.me.user}</b><span>{live.me.cluster.replace(/^https?:\/\//, "")}</span></p>}
          {live.me?.signedIn && <button type="button" class="small ghost" onClick={() => void signOut()}>Sign out</button>}
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        <Problems />
        <Lost />
        <View path={path} />
      </main>
    </div>
  );
}

// fromRecords are the views drawn from records alone: until all are there, sums and lists would say too little.
const fromRecords = (view?: string, name?: string): boolean => view === undefined || view === "nodes" || view === "queues" || view === "what-if" || (view === "jobs" && !name);

function View({ path }: { path: string[] }) {
  const [view, a, b] = path;
  if (!live.loaded && fromRecords(view, b)) return <Heading title={a ?? views.find(([to]) => to === `/${view ?? ""}`)?.[1] ?? "Overview"} sub="Reading the cluster…" />;
  switch (view) {
    case undefined: return <Overview />;
    case "nodes": return a ? <NodeView name={a} card={b} /> : <Overview />;
    case "queues": return a ? <QueueView name={a} key={a} /> : <Queues />;
    case "jobs": return a && b ? <JobView namespace={a} name={b} key={`${a}/${b}`} /> : <Jobs />;
    case "what-if": return <WhatIf />;
    case "simulation": return <Simulation />;
    case "submit": return <Submit />;
  }
  return <><Heading title="Not found" /><Empty title="There is no such view"><a href="/">Overview</a></Empty></>;
}

function LinkState() {
  const text = { connecting: "Connecting", live: "Live", lost: "Reconnecting", refused: "" }[live.link];
  return <p class={`link ${live.link}`} role="status" data-link={live.link}><i />{text}</p>;
}

// Lost says from when the state is, once it is not of now.
function Lost() {
  if (live.link !== "lost" || !live.loaded) return null;
  return <div class="banner warn" role="alert">The connection is lost. This is how it was at {clock(new Date(live.at))}; trying again.</div>;
}

// Problems says who may not read what.
function Problems() {
  const [open, setOpen] = useState(false);
  const all = [...live.records.problems.values()];
  if (!all.length) return null;
  const choose = () => askFor("Namespaces", "Those in which you may list workloads, with commas between.", namespaces(), (names) => {
    localStorage.setItem("elastic-namespaces", names.replace(/\s/g, ""));
    connect();
  });
  return (
    <div class="banner" role="status" data-problems>
      <div><strong>Part of the cluster is not shown:</strong> {all.map((p) => p.what).join(", ")}.</div>
      <div class="actions"><button type="button" class="small ghost" aria-expanded={open} onClick={() => setOpen(!open)}>Who denied what</button>
        <button type="button" class="small ghost" onClick={choose}>Namespaces</button></div>
      {open && <ul>{all.map((p) => <li key={p.what}>{p.message}</li>)}</ul>}
    </div>
  );
}

function Refusal() {
  return <main class="refusal"><h1>Elastic</h1>{live.signIn ? <SignIn /> : <p role="alert">{live.refusal}</p>}</main>;
}

function SignIn() {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const send = async (e: Event) => {
    e.preventDefault();
    try {
      await signIn(token);
    } catch (err) {
      setError((err as Error).message);
    }
  };
  return (
    <form class="form panel" onSubmit={(e) => void send(e)}>
      <p>You see and do here what your own rights in the cluster allow.</p>
      <label class="field"><span>Token of the cluster</span><input type="password" autocomplete="off" value={token} onInput={(e) => setToken(e.currentTarget.value)} /></label>
      <p class="dim">Such as <code>kubectl create token NAME</code> prints.</p>
      {error && <div class="failed" role="alert"><strong>Not signed in.</strong><span>{error}</span></div>}
      <div class="actions"><button type="submit" class="primary" disabled={!token.trim()}>Sign in</button></div>
    </form>
  );
}

// useKeys: g and a letter go to a view, / finds.
function useKeys() {
  useEffect(() => {
    let g = 0;
    const key = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || (e.target as Element).closest("input, textarea, select, dialog")) return;
      if (e.key === "/") {
        const search = document.querySelector<HTMLInputElement>("[data-search]");
        if (search) { e.preventDefault(); search.focus(); }
      } else if (e.key === "g") g = Date.now();
      else if (Date.now() - g < 1500) {
        const view = views.find(([, , letter]) => letter === e.key);
        if (view) go(view[0]);
        g = 0;
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}

const at = document.getElementById("page");
if (at) render(<Page />, at);
connect();
void whoAmI();
