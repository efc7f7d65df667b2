/** Domain registries over REST: what is asked, what is believed, and what a bad registry comes to. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { bodyOfAnswer, callOf } from "../src/registry-calls.js";
import { settled } from "./fake-clock.mjs";
import { HOME, R, endWorld, newWorld, until } from "./world.mjs";

const BASE = "https://f/domain-registry";
const H = "hyperty://f/1";
const BOB = "user://f/bob";
const RECORD = { hypertyID: H, userID: BOB, status: "live", resources: ["chat"] };
const TO = "domain://registry.f";
const byURL = `${BASE}/hyperty/url/${encodeURIComponent(H)}`;

let world, bus, catalogues;

beforeEach(() => {
  world = newWorld({ registries: { f: BASE }, registryKeys: { f: "mnk_1" } });
  ({ bus, catalogues } = world);
});
afterEach(() => endWorld(world));

const ask = (type, body, more = {}) =>
  bus.request({ type, from: `${R}/me`, to: TO, body, ...more });

test("an entry is read, registered, kept alive, changed and removed, and no stub is loaded", async () => {
  const seen = [];
  const answer = (json) => (method) => (seen.push(method), { json });
  catalogues.answers.set(byURL, answer(RECORD));
  const byUser = `${BASE}/hyperty/user/${encodeURIComponent(BOB)}`;
  catalogues.answers.set(`${byUser}/${encodeURIComponent(H)}`, answer({ message: "done" }));
  catalogues.answers.set(byUser, answer({ [H]: RECORD }));
  catalogues.answers.set(`${byUser}/hyperty?resources=chat,a%2Cb`, answer({ [H]: RECORD }));
  assert.deepEqual(await ask("read", { resource: H }), { code: 200, value: RECORD });
  assert.deepEqual(await ask("read", { resource: BOB }, { to: `${TO}/` }), {
    code: 200,
    value: { [H]: RECORD },
  });
  const criteria = { resources: ["chat", "a,b"] };
  assert.equal(
    (await ask("read", { resource: BOB, criteria }, { to: "domain://registry.F" })).code,
    200,
  );
  assert.deepEqual(await ask("create", { value: { url: H, user: BOB, expires: 60 } }), {
    code: 200,
  });
  catalogues.answers.set(byURL, answer({ message: "done" }));
  for (const body of [{ resource: H }, { resource: H, attribute: "status", value: "live" }])
    assert.equal((await ask("update", body)).code, 200);
  assert.equal((await ask("delete", { value: { url: H, user: BOB } })).code, 200);
  assert.deepEqual(seen, ["GET", "GET", "GET", "PUT", "PUT", "PUT", "DELETE"]);
  assert.equal(
    catalogues.asked.some((each) => each.includes("protocolstub")),
    false,
  );
});

test("what the message says is what is asked", () => {
  const paths = [
    ["read", { resource: "/hyperty/idp-identifier/a@b" }, "hyperty/email/a%40b"],
    ["read", { resource: "/hyperty/user/a@b" }, "hyperty/email/a%40b"],
    ["read", { resource: "user-guid://x" }, "hyperty/guid/user-guid%3A%2F%2Fx"],
    ["read", { resource: "comm://f/1" }, "hyperty/dataobject/url/comm%3A%2F%2Ff%2F1"],
    ["read", { resource: "a name/../x" }, "hyperty/dataobject/name/a%20name%2F..%2Fx"],
    [
      "read",
      { resource: "/comm", criteria: { reporter: H } },
      `hyperty/dataobject/reporter/${encodeURIComponent(H)}`,
    ],
    ["update", { resource: "comm://f/1" }, "dataobject/url/comm%3A%2F%2Ff%2F1"],
    ["delete", { value: { url: "comm://f/1" } }, "dataobject/url/comm%3A%2F%2Ff%2F1"],
  ];
  for (const [type, body, path] of paths) assert.equal(callOf(type, body).path, path);
});

test("what cannot be asked is refused by name, and nothing is sent", async () => {
  const wrong = [
    ["execute", { resource: H }, 400],
    ["read", undefined, 400],
    ["read", { resource: 5 }, 400],
    ["read", { resource: H, criteria: [] }, 400],
    ["read", { resource: BOB, criteria: { resources: [5] } }, 400],
    ["read", { resource: BOB, criteria: { page: 2 } }, 501],
    ["read", { resource: H, criteria: { resources: ["chat"] } }, 501],
    ["read", { resource: "/comm" }, 501],
    ["read", { resource: "a\ud800" }, 400],
    ["create", { value: { url: H } }, 400],
    ["create", { value: "x" }, 400],
    ["update", { resource: "nothing" }, 400],
    ["delete", {}, 400],
  ];
  for (const [type, body, code] of wrong)
    await assert.rejects(ask(type, body), { code }, JSON.stringify([type, body]));
  assert.deepEqual(catalogues.asked, []);
});

test("a registry that lies is believed nothing", async () => {
  const by = { method: "GET", by: ["user", BOB] };
  const lies = [
    [
      { method: "GET", url: H },
      { ...RECORD, hypertyID: "hyperty://f/2" },
    ],
    [{ method: "GET", url: H }, [RECORD]],
    [{ method: "GET", url: H }, null],
    [by, { [H]: { ...RECORD, userID: "user://f/mallory" } }],
    [by, { "hyperty://f/2": RECORD }],
    [by, { [H]: "x" }],
    [
      { method: "GET", by: ["email", "bob"] },
      { [H]: { ...RECORD, userID: "user://f/mallory-bob" } },
    ],
    [{ method: "GET", by: ["guid", "g"] }, { [H]: { ...RECORD, guid: "h" } }],
    [
      { method: "GET", by: ["reporter", H] },
      { "comm://f/1": { url: "comm://f/1", reporter: "hyperty://f/2" } },
    ],
  ];
  for (const [call, found] of lies)
    assert.throws(() => bodyOfAnswer(call, 200, found), { code: 502 }, JSON.stringify(found));
  for (const text of ["", "no", "[]", `${"[".repeat(10_000)}`]) {
    catalogues.answers.set(byURL, { text });
    await assert.rejects(ask("read", { resource: H }), { code: 502 });
  }
  catalogues.answers.set(byURL, { text: `{"x":"${"x".repeat(1_000_000)}"}` });
  await assert.rejects(ask("read", { resource: H }), { code: 502 });
  catalogues.answers.set(byURL, { status: 302, text: "" });
  await assert.rejects(ask("read", { resource: H }), { code: 502 });
});

test("its refusals are passed on in its words, and unavailable records with them", async () => {
  for (const [status, code] of [
    [401, 401],
    [403, 403],
    [404, 404],
    [429, 429],
    [500, 504],
    [503, 504],
    [418, 502],
  ]) {
    catalogues.answers.set(byURL, { status, json: { message: "words ".repeat(1000) } });
    const error = await ask("read", { resource: H }).catch((each) => each);
    assert.equal(error.code, code);
    assert.equal(error.message.length, 500);
  }
  catalogues.answers.set(byURL, { status: 408, json: { ...RECORD, status: "disconnected" } });
  const late = await ask("read", { resource: H }).catch((each) => each);
  assert.deepEqual([late.code, late.body.value.hypertyID], [408, H]);
});

test("a registry that is frozen or resets costs a limited time, and a sender's order is kept", async () => {
  const order = [];
  catalogues.answers.set(
    byURL,
    (method, signal) =>
      new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(new Error("aborted"))),
      ),
  );
  const frozen = ask("read", { resource: H }, { from: `${R}/frozen` });
  frozen.catch(() => order.push("frozen"));
  const behind = ask("read", { resource: BOB }, { from: `${R}/frozen` });
  behind.catch(({ code }) => order.push(code));
  catalogues.answers.set(`${BASE}/hyperty/url/hyperty%3A%2F%2Ff%2F3`, () =>
    Promise.reject(new TypeError("reset")),
  );
  await assert.rejects(ask("read", { resource: "hyperty://f/3" }), { code: 504 }); // another sender does not wait
  assert.deepEqual(order, []);
  await world.clock.turn(10_000);
  await assert.rejects(frozen, { code: 504 });
  await until(() => order.length === 2, "what waited behind it");
  assert.deepEqual(order, ["frozen", 404]);
});

test("what waits is bounded, and what has waited too long is answered", async () => {
  catalogues.answers.set(byURL, () => new Promise(() => {}));
  const all = Array.from({ length: 101 }, (_, n) =>
    ask("read", { resource: H }, { from: `${R}/${n % 9}` }).catch(({ code }) => code),
  );
  assert.equal(await all[100], 503);
  await settled();
  assert.equal(catalogues.asked.length, 8);
  await world.clock.turn(12_000);
  assert.deepEqual(new Set(await Promise.all(all.slice(0, 100))), new Set([504]));
});

test("only what goes out from here is asked, with the domain's key, past the policies", async () => {
  let headers;
  catalogues.answers.set(byURL, { json: { message: "" } });
  const { fetch } = world.runtime.catalogue;
  world.runtime.catalogue.fetch = (url, request) => (
    (headers = request.headers),
    fetch(url, request)
  );
  await ask("update", { resource: H });
  assert.equal(headers.Authorization, "Bearer mnk_1");
  bus.pipelineOut.use(({ type }) => (type === "update" ? { code: 403, desc: "no" } : undefined));
  await assert.rejects(ask("update", { resource: H }, { from: "hyperty://d/me" }), { code: 403 });
  await catalogues.add(HOME);
  await world.runtime.logIn();
  const [stub] = globalThis.world.started;
  const before = catalogues.asked.length;
  stub.bring({ id: 7, type: "read", from: "hyperty://f/x", to: TO, body: { resource: H } });
  await until(() => stub.sent.some(({ type }) => type === "response"), "the answer");
  assert.equal(stub.sent.find(({ type }) => type === "response").body.code, 404);
  assert.equal(catalogues.asked.length, before);
});

test("a base that is no URL is refused at once", () => {
  assert.throws(() => newWorld({ registries: { f: "f/domain-registry" } }), TypeError);
});
