// The page as elastic-web serves it: two teams sign in with their tokens, one after the other, in one browser.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessible, launch } from "./browser.mjs";

const link = process.env.ELASTIC_LINK;
let browser, page, context;

before(async () => {
  browser = await launch();
  context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1360, height: 860 } });
  page = await context.newPage();
  page.setDefaultTimeout(30_000);
});
after(() => browser?.close());

const signIn = async (token) => {
  await page.getByLabel("Token of the cluster").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
};

test("who is not signed in sees nothing", async () => {
  await page.goto(link + "/jobs");
  await page.getByLabel("Token of the cluster").waitFor();
  assert.deepEqual(await accessible(page), []);
  await signIn("not-a-token");
  await page.getByText("the cluster does not know this token").waitFor();
  assert.deepEqual(await context.cookies(), []);
});

test("each team sees its own, one after the other", async () => {
  await signIn(process.env.ELASTIC_RED);
  await page.getByText("red-secret").waitFor();
  assert.equal(await page.getByText("blue-secret").count(), 0);
  const [cookie, ...more] = await context.cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.secure, cookie.sameSite, more.length], ["__Host-elastic-token", true, true, "Strict", 0]);
  assert.equal(await page.evaluate(() => document.cookie), "");
  assert.doesNotMatch(page.url(), /token/i);
  await page.reload();
  await page.getByText("red-secret").waitFor();

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token of the cluster").waitFor();
  assert.equal(await page.getByText("red-secret").count(), 0);
  await signIn(process.env.ELASTIC_BLUE);
  await page.getByText("blue-secret").waitFor();
  assert.equal(await page.getByText("red-secret").count(), 0);
});
