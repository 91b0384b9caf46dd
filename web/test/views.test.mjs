// Each view in a real browser against a real cluster.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { execFileSync } from "node:child_process";
import { accessible, elastic, kubectl, launch, open, serve } from "./browser.mjs";

const data = process.env.ELASTIC_TESTDATA;
const shots = process.env.ELASTIC_SHOTS;
let browser, server, tab, page;
const deadline = 30_000;

const workload = (namespace, job) => kubectl(["get", "workloads", "-n", namespace, "-o", "name"]).split("\n").map((n) => n.split("/").pop()).find((n) => n.startsWith(`job-${job}-`));
// cardOf a job's first pod: its node, the first of its cards, and the pod.
const cardOf = (namespace, job) => {
  const [node, cards, pod] = kubectl(["get", "pods", "-n", namespace, "-l", `job-name=${job}`, "-o", "jsonpath={.items[0].spec.nodeName} {.items[0].metadata.annotations.elasticgpu\\.io/container-main} {.items[0].metadata.name}"]).split(" ");
  return [node, cards.split(",")[0], pod];
};
const view = async (path) => {
  await page.goto(server.base + path);
  await page.waitForSelector("[data-link=live]");
};
const text = (selector) => page.locator(selector).innerText();
const eventually = async (what, check) => {
  const end = Date.now() + deadline;
  for (;;) {
    if (await check()) return;
    if (Date.now() > end) assert.fail(`waited in vain: ${what}`);
    await page.waitForTimeout(100);
  }
};

before(async () => {
  if (shots) mkdirSync(shots, { recursive: true });
  kubectl(["create", "-f", join(data, "cluster.yaml")]);
  browser = await launch();
  server = await serve(["--price", "H100-80G=2.50", "--price", "A100-40G=1.10"]);
  tab = await open(browser, server);
  page = tab.page;
  page.setDefaultTimeout(deadline);
  // What runs comes first, so that what waits waits for it.
  await view("/jobs?state=Running");
  await eventually("nine jobs run", async () => (await page.locator(".t-jobs [role=rowgroup] .row").count()) === 9);
  kubectl(["create", "-f", join(data, "waiting.yaml")]);
});

after(async () => {
  await browser?.close();
  await server?.end();
});

test("changes are shown without a reload", async () => {
  await view("/jobs?state=Waiting");
  await page.evaluate(() => { window.notReloaded = true; });
  await eventually("four jobs wait", async () => (await page.locator(".t-jobs [role=rowgroup] .row").count()) === 4);
  assert.ok(await page.evaluate(() => window.notReloaded));
});

test("overview", async () => {
  await view("/");
  await page.locator("[data-node]").nth(6).waitFor();
  await eventually("the cards are with their queues", async () => /team-vision\s*12[\s\S]*production\s*8[\s\S]*team-nlp\s*6[\s\S]*notebooks\s*1\.6/.test(await text(".legend")));
  // Which node has what depends on which job came first; how much is free does not.
  assert.match(await text(".stats"), /Fragmented\s*6\s*too small for llama-pretrain/);
  assert.match(await page.locator("[data-node]", { hasText: "fragmented" }).first().innerText(), /h100[\s\S]*free/);
  assert.equal(await page.locator("[data-node=h100-80g-0] .card").count(), 8);
  await page.getByLabel("Model").selectOption("A100-40G");
  assert.equal(await page.locator("[data-node]").count(), 4);
  assert.match(page.url(), /model=A100-40G/);
  await page.getByLabel("State").selectOption("full");
  for (const tile of await page.locator("[data-node]").allInnerTexts()) assert.match(tile, /full/);
  await page.getByRole("button", { name: "Load" }).click();
  assert.match(page.url(), /by=load/);
});

test("queues, and who borrows", async () => {
  await view("/queues");
  const vision = page.getByRole("row").filter({ hasText: "team-vision" });
  assert.deepEqual((await vision.getByRole("cell").allInnerTexts()).slice(2).map((s) => s.trim()), ["12", "8", "4", "–", "0", "–", "2", "1"]);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("button", { name: "Copy as text" }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(copied, /^Queue\tUse of quota\tUsed/);
  assert.match(copied, /team-vision\t12\/8\t12\t8\t4/);
});

test("a queue's order", async () => {
  await view("/queues/team-nlp");
  const rows = page.locator(".t-line [role=rowgroup] .row");
  await rows.nth(1).waitFor();
  assert.match(await rows.filter({ hasText: "llama-pretrain" }).innerText(), /[12]\s[\s\S]*llama-pretrain[\s\S]*16[\s\S]*in about[\s\S]*insufficient unused quota/);
  assert.match(await text(".t-running"), /bert-distill/);
});

test("why a job waits", async () => {
  await view(`/jobs/nlp/${workload("nlp", "llama-pretrain")}`);
  await page.waitForSelector("[data-explanation]");
  assert.match(await text("[data-headline]"), /waits in queue main \(ClusterQueue team-nlp\), at position [12]/);
  const shown = await text("[data-explanation]");
  assert.match(shown, /quota is used up[\s\S]*WaitingForQuota/);
  assert.match(shown, /2 × \(8 nvidia.com\/gpu\)/);
  assert.match(shown, /12 nvidia.com\/gpu[\s\S]*cohort org/);
  assert.match(shown, /resnet-sweep[\s\S]*What would help/);
  assert.match(await text(".timeline"), /created/);
});

test("a job that runs, its pods, cost and log", async () => {
  await view(`/jobs/vision/${workload("vision", "clip-finetune")}`);
  await page.locator(".t-pods .tag", { hasText: "Running" }).waitFor();
  assert.match(await text(".stats"), /Cost\s*[\d.]+ USD/);
  if (shots) await page.screenshot({ path: join(shots, "job-running.png") });
  await page.getByRole("button", { name: "Log" }).click();
  await eventually("the log is shown", async () => /started|train/i.test(await text(".log")));
});

test("the load of a pod's cards, live", async () => {
  const [node, card, pod] = cardOf("vision", "clip-finetune");
  const report = (core) => kubectl(["annotate", "node", node, "--overwrite", `sandbox.elasticai.io/gpu-load=${card}=${core}`]); // as a simulated card reports it
  await view(`/jobs/vision/${workload("vision", "clip-finetune")}`);
  await page.evaluate(() => { window.notReloaded = true; });
  const cells = page.locator(".t-pods .row", { hasText: pod }).getByRole("cell");
  for (const core of [73, 12]) {
    report(core);
    await eventually(`a load of ${core} % is shown`, async () => (await cells.nth(4).innerText()).split(", ").includes(`${core} %`));
  }
  assert.ok(await page.evaluate(() => window.notReloaded));
});

test("a node and a card", async () => {
  // Whichever node and card the notebooks went to.
  const [node, card] = cardOf("lab", "notebook-ada");
  await view(`/nodes/${node}`);
  await page.getByText("notebook-").first().waitFor();
  await page.locator(".t-cards .name a").nth(Number(card)).click();
  await page.waitForSelector(".big-card");
  assert.match(await text(".t-shares"), /notebook-\w+/);
});

test("what if a team had other quota", async () => {
  await view("/what-if");
  await page.locator(".slider", { hasText: "team-nlp" }).locator("input").evaluate((input) => { input.value = "0"; input.dispatchEvent(new Event("input", { bubbles: true })); });
  await page.locator("[data-what-if][data-old=false]").waitFor();
  // Without these 10 the cohort has 12: llama-pretrain never gets its 16.
  const says = /If team-nlp had 10 less nvidia.com\/gpu, 1 job less would start within a day: 2 of 4 that wait, instead of 3\./;
  assert.match(await text("[data-what-if] .panel h2"), says);
  assert.match(await page.locator(".t-starts", { hasText: "Later, or not at all" }).innerText(), /nlp\/llama-pretrain[\s\S]*not in that time/);
  // The link has the question in it, and nothing was written.
  assert.match(page.url(), /what-if\?team-nlp/);
  await page.reload();
  await page.locator("[data-what-if][data-old=false]").waitFor();
  assert.match(await text("[data-what-if] .panel h2"), says);
  assert.equal(kubectl(["get", "clusterqueue", "team-nlp", "-o", "jsonpath={.metadata.generation}"]), "1");
  await page.getByRole("button", { name: "As it is" }).click();
  await page.getByText("Nothing is changed yet").waitFor();
});

test("a result of a simulation", async () => {
  const docs = new URL("../../docs/simulate/", import.meta.url).pathname;
  const trace = ["simulate", "--trace", join(docs, "jobs.csv"), "--shape", join(docs, "queues.csv"), "--borrow", "-o", "json"];
  const run = (...more) => execFileSync(elastic, [...trace, ...more], { encoding: "utf8", maxBuffer: 64 << 20 });
  const result = run("--set", "+1x8:H100-80G");
  await view("/simulation");
  await page.getByText("No result is open").waitFor();
  await page.getByLabel("Result").setInputFiles({ name: "bad.json", mimeType: "application/json", buffer: Buffer.from("[{}]") });
  await page.getByText("bad.json is no result of a simulation").waitFor();
  await page.getByLabel("Result").setInputFiles({ name: "result.json", mimeType: "application/json", buffer: Buffer.from(result) });
  await page.locator(".t-variants .row").nth(2).waitFor();
  assert.equal(await page.locator(".t-groups [role=rowgroup] .row").count(), JSON.parse(result)[0].byQueue.length);
  assert.match(await text(".t-groups"), /Weighted share/);
  assert.match(await page.locator(".chart", { hasText: "Weighted share, by queue" }).innerText(), /research[\s\S]*vision/);
  assert.equal(await page.getByRole("note", { name: "Notes" }).count(), 0);
  if (shots) await page.screenshot({ path: join(shots, "simulation.png") });
  assert.deepEqual(await accessible(page), []);

  // What is odd about a variant: nobody has quota for the new cards.
  const [, more] = JSON.parse(result);
  await page.getByRole("combobox", { name: "Variant" }).selectOption(more.name);
  await page.getByRole("note", { name: "Notes" }).waitFor();
  assert.deepEqual(await page.getByRole("note", { name: "Notes" }).getByRole("listitem").allInnerTexts(), more.notes);
  assert.match(more.notes[0], /8 cards have no quota/);

  // Jobs that never start, and lines that are left out.
  const none = { ...more, name: "none", notes: undefined, ended: more.ended - 2, linesLeftOut: { "asks for part of a card": 3 }, neverStartedJobs: [{ queue: "vision", why: "too large", jobs: ["v1", "v2"] }] };
  await page.getByLabel("Result").setInputFiles({ name: "none.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify([none, more])) });
  await page.getByRole("combobox", { name: "Variant" }).selectOption(none.name);
  await page.locator(".t-not-started .row").nth(1).waitFor();
  assert.match(await page.getByRole("note", { name: "Notes" }).innerText(), /3 of \d+ lines of the trace are left out: asks for part of a card \(3\)[\s\S]*It ended \d+ of \d+ jobs/);
  assert.match(await text(".t-not-started"), /vision[\s\S]*2[\s\S]*v1[\s\S]*too large/);
  assert.deepEqual(await accessible(page), []);

  // What became of a budget and a reservation.
  const rules = JSON.parse(run("--assume-limits", "1.5", "--set", "queue/research.budget=300/Day", "--set", "queue/vision.reservation=24@72h+12h"));
  const [, budget, reservation] = rules;
  await page.getByLabel("Result").setInputFiles({ name: "rules.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(rules)) });
  await page.getByRole("combobox", { name: "Variant" }).selectOption(budget.name);
  await page.locator(".t-budgets .row").nth(2).waitFor();
  const cells = (table, text) => page.locator(`${table} .row`, { hasText: text }).first().getByRole("cell").allInnerTexts();
  assert.equal(await page.locator(".t-budgets [role=rowgroup] .row").count(), budget.budgets[0].periods.length);
  assert.deepEqual((await cells(".t-budgets", budget.budgets[0].on)).slice(1, 3), [`300 ${budget.budgets[0].unit}`, budget.budgets[0].period]);
  assert.match((await cells(".t-variants", budget.name)).join(" | "), new RegExp(`\\| ${budget.waitedForBudget.jobs}, \\d+ d`));
  assert.match((await cells(".t-groups", "research")).join(" | "), new RegExp(`\\| ${budget.byQueue.find((q) => q.name === "research").waitedForBudget.jobs}, \\d+ d`));
  assert.match(await page.locator(".chart", { hasText: "Spent of each budget" }).innerText(), /ClusterQueue\/research, Day \d/);
  assert.deepEqual(await accessible(page), []);
  await page.getByRole("combobox", { name: "Variant" }).selectOption(reservation.name);
  await page.locator(".t-reservations .row").nth(1).waitFor();
  const [reserved] = reservation.reservations;
  assert.deepEqual((await cells(".t-reservations", reserved.for)), [reserved.for, "24", "3 d 0 h", "3 d 12 h", String(reserved.lacking)]);
  assert.equal(await page.locator(".t-budgets").count(), 0);
  assert.deepEqual(await accessible(page), []);
});

test("a check says whom a job would preempt", async () => {
  await view("/submit");
  await page.getByLabel("Name").fill("first");
  await page.getByLabel("Queue").selectOption("prod/main");
  await page.getByLabel("Cards", { exact: true }).fill("4");
  await page.getByLabel("Priority class").fill("urgent");
  await page.getByRole("button", { name: "Check" }).click();
  await eventually("whom it would preempt", async () => /Would preempt:\s*job\//.test(await text("[data-plan]")));
  assert.equal(kubectl(["get", "job", "-n", "prod", "first", "--ignore-not-found"]), "");
});

test("a check before a job is sent", async () => {
  await view("/submit");
  await page.getByLabel("Name").fill("from-the-page");
  await page.getByLabel("Queue").selectOption("nlp/main");
  await page.getByLabel("Cards", { exact: true }).fill("8");
  await page.getByRole("button", { name: "Check" }).click();
  await page.waitForSelector("[data-plan]");
  assert.match(await text("[data-plan]"), /from-the-page would wait in queue main/);
  assert.equal(kubectl(["get", "job", "-n", "nlp", "from-the-page", "--ignore-not-found"]), "");
  await page.getByLabel("Cards", { exact: true }).fill("2");
  await page.getByRole("button", { name: "Check" }).click();
  await eventually("it would start", async () => /would start now[\s\S]*h100-80g-/.test(await text("[data-plan]")));
  await page.getByRole("button", { name: "Submit …" }).click();
  await page.locator("[data-confirm]:enabled").click();
  await eventually("it runs, or has run", async () => /from-the-page[\s\S]*(Running|Finished)/.test(await text(".t-jobs"))); // which takes it seconds
});

test("nothing is done without a confirmation", async () => {
  kubectl(["delete", "job", "-n", "nlp", "from-the-page"]);
  kubectl(["create", "-f", join(data, "runs-on.yaml")]);
  await eventually("it has a workload", async () => workload("nlp", "runs-on"));
  const name = workload("nlp", "runs-on");
  const active = () => kubectl(["get", "workload", "-n", "nlp", name, "-o", "jsonpath={.spec.active}"]);
  await view(`/jobs/nlp/${name}`);
  await page.locator("h1 .tag", { hasText: "Running" }).waitFor();
  await page.getByRole("button", { name: "Suspend" }).click();
  await page.getByText("are free for others").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  assert.notEqual(active(), "false");
  await page.getByRole("button", { name: "Suspend" }).click();
  await page.locator("[data-confirm]:enabled").click();
  await page.locator("h1 .tag", { hasText: "Held back" }).waitFor();
  assert.equal(active(), "false");
  // A priority class can be added as long as the job does not run.
  await eventually("the job is suspended", async () => kubectl(["get", "job", "-n", "nlp", "runs-on", "-o", "jsonpath={.spec.suspend}"]) === "true");
  await page.getByRole("button", { name: "Priority" }).click();
  await page.getByRole("textbox", { name: "WorkloadPriorityClass" }).fill("urgent");
  await page.getByRole("button", { name: "Go on" }).click();
  await page.locator("[data-confirm]:enabled").click();
  await page.getByText("urgent (100)").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.locator("[data-confirm]:enabled").click();
  await page.locator("h1 .tag", { hasText: "Running" }).waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByText("cannot be undone").waitFor();
  await page.locator("[data-confirm]:enabled").click();
  await eventually("it is gone", async () => kubectl(["get", "job", "-n", "nlp", "runs-on", "--ignore-not-found"]) === "");
  await page.waitForURL((url) => !url.pathname.includes(name)); // the page goes back by itself
  await page.waitForSelector("[data-link=live]");
});

test("a queue is stopped and resumed", async () => {
  await view("/queues/notebooks");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("admits nothing more").waitFor();
  await page.locator("[data-confirm]:enabled").click();
  await page.locator("h1 .tag", { hasText: "Stopped" }).waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.locator("[data-confirm]:enabled").click();
  await page.locator("h1 .tag", { hasText: "Active" }).waitFor();
});

test("keys", async () => {
  await view("/");
  await page.locator("body").press("g");
  await page.locator("body").press("j");
  await page.getByRole("heading", { name: "Jobs", level: 1 }).waitFor();
  await page.locator("body").press("/");
  await page.keyboard.type("sam");
  await eventually("one job is found", async () => (await page.locator(".t-jobs [role=rowgroup] .row").count()) === 1);
});

// copied has each table of the view copied, and compares it with what is shown.
const copied = async () => {
  const wrong = [];
  const tables = await page.locator("section.table").filter({ has: page.getByRole("table") }).all();
  for (const table of tables) {
    const heads = await table.getByRole("columnheader").allInnerTexts();
    const rows = Number(await table.getByRole("table").getAttribute("aria-rowcount"));
    await table.getByRole("button", { name: "Copy as text" }).click();
    const lines = (await page.evaluate(() => navigator.clipboard.readText())).split("\n");
    if (lines[0] !== heads.join("\t") || lines.length !== rows) wrong.push(`${lines[0]}: ${lines.length} lines of ${rows}`);
  }
  return { tables: tables.length, wrong };
};

test("each table of each view is copied as text", async () => {
  const [node, card] = cardOf("lab", "notebook-ada");
  const views = { "/queues": 1, "/queues/team-nlp": 3, "/jobs": 1, [`/jobs/vision/${workload("vision", "clip-finetune")}`]: 1, [`/nodes/${node}`]: 1, [`/nodes/${node}/${node}-${card}`]: 1, "/what-if?team-nlp%2Fh100%2Fnvidia.com%2Fgpu=0": 1 };
  for (const [path, tables] of Object.entries(views)) {
    await view(path);
    await eventually(`${path} has its tables`, async () => (await page.getByRole("table").count()) >= tables);
    const all = await copied();
    assert.ok(all.tables >= tables, `${path} has ${all.tables} tables`);
    assert.deepEqual(all.wrong, [], path);
  }
});

test("use over time", async () => {
  const titles = async () => (await page.locator(".chart figcaption strong").allInnerTexts()).join("; ");
  await view("/queues");
  await eventually("the charts of all queues", async () => (await titles()) === "Cards in use against quota; Jobs; Evictions; Cost of an hour, USD");
  await view("/queues/team-vision");
  await eventually("the charts of a queue", async () => /Cards in use against quota/.test(await titles()));
  const [node, card] = cardOf("lab", "notebook-ada");
  await view(`/nodes/${node}/${node}-${card}`);
  await eventually("the chart of a card", async () => /Compute given out/.test(await titles()));
});

test("accessible in light and dark, and on a phone", async () => {
  const waits = workload("nlp", "llama-pretrain");
  const paths = { overview: "/", queues: "/queues", queue: "/queues/team-vision", jobs: "/jobs", job: `/jobs/nlp/${waits}`, node: "/nodes/a100-40g-2", card: "/nodes/a100-40g-2/a100-40g-2-0", submit: "/submit", simulation: "/simulation", "what-if": "/what-if?team-nlp%2Fh100%2Fnvidia.com%2Fgpu=0" };
  const found = [];
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [name, path] of Object.entries(paths)) {
      await view(path);
      if (name === "job") await page.waitForSelector("[data-explanation]");
      if (name === "queue") await page.locator(".t-line .row").nth(1).waitFor();
      if (name === "what-if") await page.locator("[data-what-if][data-old=false]").waitFor();
      for (const v of await accessible(page)) found.push(`${name}, ${colorScheme}: ${v}`);
      if (shots && name !== "simulation" && (colorScheme === "light" || name === "overview")) await page.screenshot({ path: join(shots, colorScheme === "light" ? `${name}.png` : `${name}-dark.png`) });
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 390, height: 800 });
  for (const [name, path] of Object.entries(paths)) {
    await view(path);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (wide > 0) found.push(`${name} is ${wide} pixels too wide on a phone`);
    if (shots && name === "job") await page.screenshot({ path: join(shots, "phone.png") });
  }
  await page.setViewportSize({ width: 1360, height: 860 });
  assert.deepEqual(found, []);
});

test("a tenant sees what they may, and who denied the rest", async () => {
  kubectl(["apply", "-f", join(data, "tenant.yaml")]);
  const token = kubectl(["create", "token", "-n", "nlp", "tenant"]).trim();
  const admin = kubectl(["config", "view", "--raw", "--minify", "-o", "json"]);
  const config = JSON.parse(admin);
  config.users = [{ name: "tenant", user: { token } }];
  for (const c of config.contexts) { c.context.user = "tenant"; c.context.namespace = "nlp"; }
  const { mkdtempSync, writeFileSync } = await import("node:fs");
  const { tmpdir } = await import("node:os");
  const file = join(mkdtempSync(join(tmpdir(), "tenant-")), "kubeconfig");
  writeFileSync(file, JSON.stringify(config), { mode: 0o600 });
  const other = await serve(["--port", "0", "--kubeconfig", file]);
  try {
    const { page: theirs, bad } = await open(browser, other);
    await theirs.getByRole("button", { name: "Who denied what" }).click();
    const denied = await theirs.locator("[data-problems]").innerText();
    assert.match(denied, /User "system:serviceaccount:nlp:tenant" cannot list resource "gpus"/);
    await theirs.goto(`${other.base}/jobs`);
    await theirs.getByText("llama-pretrain").waitFor();
    assert.equal(await theirs.getByText("resnet-sweep").count(), 0);
    // The explanation names their own job and only counts those of others.
    await theirs.goto(`${other.base}/jobs/nlp/${workload("nlp", "llama-pretrain")}`);
    await theirs.getByText("of namespaces you may not see").first().waitFor();
    assert.equal(await theirs.getByText("resnet-sweep").count(), 0);
    await theirs.getByRole("button", { name: "Delete" }).click();
    await theirs.getByText("You may not do this.").waitFor();
    assert.match(await theirs.locator("dialog").innerText(), /tenant" cannot delete resource "jobs"/);
    assert.ok(await theirs.locator("[data-confirm]").isDisabled());
    assert.deepEqual(bad, []);
  } finally {
    await other.end();
  }
});

test("a server that is gone and comes back", async () => {
  await view("/queues");
  await page.evaluate(() => { window.notReloaded = true; });
  await server.end();
  await page.waitForSelector("[data-link=lost]");
  await page.getByText("The connection is lost. This is how it was at").waitFor();
  assert.match(await text(".t-queues"), /team-vision/);
  server = await serve(["--port", server.port, "--price", "H100-80G=2.50"]);
  await page.waitForSelector("[data-link=live]");
  assert.equal(await page.getByText("The connection is lost").count(), 0);
  assert.match(await text(".t-queues"), /team-vision/);
  assert.ok(await page.evaluate(() => window.notReloaded));
});

test("no request leaves the origin", () => {
  assert.deepEqual(tab.bad, []);
  assert.doesNotMatch(readFileSync(new URL("../../internal/web/dist/assets/page.js", import.meta.url), "utf8"), /https?:\/\/(?!www\.w3\.org)/);
});
