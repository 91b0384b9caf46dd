// What the browser's tests share: the server, the browser, the cluster.
import { spawn, execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const elastic = process.env.ELASTIC;

// kubectl against the test's cluster.
export function kubectl(args, input) {
  return execFileSync(elastic, ["kubectl", "--name", process.env.ELASTIC_CLUSTER, ...args], { input, encoding: "utf8" });
}

// serve starts "elastic web" and returns its link, and how to end it.
export async function serve(more = [], env = {}) {
  const child = spawn(elastic, ["web", "--browser=false", ...more], { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] });
  const link = await new Promise((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (d) => {
      text += d;
      const m = text.match(/http:\/\/\S+/);
      if (m) resolve(m[0]);
    });
    child.on("exit", (code) => reject(new Error(`elastic web ended with ${code}: ${text}`)));
  });
  const port = new URL(link).port;
  return { link, base: new URL(link).origin, port, end: () => new Promise((resolve) => { child.on("exit", resolve); child.kill("SIGKILL"); }) };
}

export async function launch(args = []) {
  return chromium.launch({
    executablePath: process.env.ELASTIC_BROWSER,
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", ...args],
  });
}

// open a tab; requests to anywhere else than the server, errors of the page and of its policy are collected.
export async function open(browser, server, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options });
  const page = await context.newPage();
  const bad = [];
  page.on("request", (r) => { if (!r.url().startsWith(server.base + "/") && !r.url().startsWith("data:")) bad.push(`request to ${r.url()}`); });
  page.on("pageerror", (e) => bad.push(`error: ${e.message}`));
  page.on("console", (m) => { if (m.type() === "error" && /Content Security Policy/.test(m.text())) bad.push(m.text()); });
  await page.goto(server.link);
  await page.waitForSelector("[data-link=live]");
  return { page, context, bad };
}

// accessible runs axe-core on what is shown.
export async function accessible(page) {
  await page.evaluate(axe); // by the debugger, past the page's own policy
  const result = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
  return result.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html).join(" | ")}`);
}
