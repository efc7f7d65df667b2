/** Hyperties that others reach: the cases that both runtimes share, and what only a clock shows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { AnswerError, Refusal } from "../src/common.js";
import { answerTo } from "../src/messages.js";
import { Syncher } from "../src/syncher/index.js";
import { settled } from "./fake-clock.mjs";
import { newStorage } from "./peers.mjs";
import { R, newWorld } from "./world.mjs";

const STUB = "runtime://d/protostub/1";
const CASES = await lines("hyperties.jsonl");
const HANDLERS = {
  echo: (value) => value,
  nothing: () => {},
  later: async (value) => value,
  refuse: () => {
    throw new Refusal(403, "Not you.");
  },
  break: () => {
    throw new Error("It broke.");
  },
};

async function lines(name) {
  const url = new URL(name, import.meta.url);
  const text = globalThis.process
    ? await (await import("node:fs/promises")).readFile(url, "utf8")
    : await (await fetch(url)).text();
  return text.trim().split("\n").map(JSON.parse);
}

/** A runtime whose node answers 200, unless a case says otherwise. */
function begin(answers = [], options = {}) {
  const all = newWorld(options);
  const { runtime, bus } = all;
  const node = { sent: [], answers, isAway: false };
  bus.resolver = Object.assign(Object.create(runtime.resolver), {
    route: () => STUB,
    isHome: (via) => via === STUB,
    stubs: { get: () => undefined },
    homeDomain: "d",
    names: { interworking: new Set(), routing: {} },
  });
  bus.addListener(STUB, (message) => {
    node.sent.push(message);
    const { type, to } = message;
    const known = node.answers.find(([kind, address]) => kind === type && address === to);
    if (type !== "response" && !node.isAway)
      bus.postFrom(STUB, answerTo(message, known?.[2] ?? { code: 200 }));
  });
  const say = (value) =>
    bus.postMessage({
      type: "update",
      from: R,
      to: `${R}/status`,
      body: { value, resource: STUB },
    });
  return { ...all, node, say };
}

const filled = (json, url) =>
  JSON.parse(
    JSON.stringify(json).replaceAll('"URL"', JSON.stringify(url)).replaceAll('"R', `"${R}`),
  );

/** Whether `found` has all that is `wanted`; lists are equal. */
function has(found, wanted, where = "") {
  for (const [key, value] of Object.entries(wanted)) {
    if (value !== null && typeof value === "object" && !Array.isArray(value))
      has(found?.[key] ?? {}, value, `${where}.${key}`);
    else assert.deepEqual(found?.[key], value, `${where}.${key}`);
  }
}

function optionsOf({ handlers, ...options }) {
  const named = (each) => HANDLERS[each] ?? each;
  if (handlers === undefined) return options;
  if (typeof handlers !== "object") return { ...options, handlers: named(handlers) };
  const all = Object.entries(handlers).map(([type, each]) => [type, named(each)]);
  return { ...options, handlers: Object.fromEntries(all) };
}

async function run(the, runtime) {
  let hyperty, result;
  if (the.make) hyperty = await runtime.hyperty(the.make[0], optionsOf(the.make[1]));
  if (the.find) result = await runtime.find(the.find);
  if (the.do) result = await hyperty[the.do[0]](...the.do.slice(1));
  return { hyperty, result };
}

async function brought({ bring: { type, value }, answered }, node, bus, url) {
  bus.postFrom(STUB, { id: 7, type, from: "hyperty://f/9", to: url, body: { value } });
  await settled();
  const { id, from, to, body } = node.sent.at(-1);
  assert.deepEqual([id, from, to, body], [7, url, "hyperty://f/9", answered]);
}

/** What went out. */
function said(sent, found, url) {
  const wanted = filled(sent, url || (found[0]?.body?.resources?.[0] ?? ""));
  assert.deepEqual(
    found.map(({ type }) => type),
    wanted.map(({ type }) => type),
  );
  wanted.forEach((each, at) => has(found[at], each, `${at}`));
}

/** What the runtime tells of itself; of errors the reason, and words of the text. */
function told(state, found, url) {
  const wanted = JSON.parse(JSON.stringify(filled(state, url)).replaceAll("URL", url));
  const { errors, ...others } = wanted;
  has(found, others);
  assert.equal(found.errors.length, errors.length);
  found.errors.forEach(({ at, reason, text }, number) => {
    assert.ok(Date.parse(at) > 0);
    assert.equal(reason, errors[number][0]);
    assert.ok(text.includes(errors[number][1]), text);
  });
  assert.deepEqual(JSON.parse(JSON.stringify(found)), found);
}

function refused(error, [name, code, ...words]) {
  assert.equal(error.constructor, { TypeError, AnswerError }[name], error.stack);
  if (code) assert.equal(error.code, code);
  for (const each of words) assert.ok(error.message.includes(each), error.message);
}

for (const the of CASES) {
  test(`shared: ${the.case}`, async () => {
    const { runtime, bus, node, clock } = begin(the.node);
    bus.onError(() => {});
    let url = "";
    try {
      const { hyperty, result } = await run(the, runtime);
      url = hyperty?.url ?? "";
      if (the.explain) {
        const [address, wanted] = filled(the.explain, url);
        const { why, ...told } = runtime.explain(address);
        assert.ok(why.endsWith("."));
        has(told, wanted);
      }
      assert.ok(!the.error, "it was refused");
      if ("result" in the) assert.deepEqual(result ?? null, the.result);
      if (the.bring) await brought(the, node, bus, url);
    } catch (error) {
      if (!the.error) throw error;
      refused(error, the.error);
    }
    await settled();
    if (the.state) told(the.state, runtime.state(), url || node.sent[0].body.resources[0]);
    if (the.sent) said(the.sent, node.sent, url);
    bus.close();
    clock.turn(0);
  });
}

test("it is claimed and registered again after a new session, and gives signs of life", async () => {
  const { runtime, bus, node, say, clock } = begin();
  const { url } = await runtime.hyperty("echo");
  const sent = () => node.sent.splice(0).map(({ type, to }) => `${type} ${to}`);
  sent();
  await clock.turn((3600 / 2.2) * 1000);
  assert.deepEqual(sent(), ["update domain://registry.d"]);
  node.answers = [["update", "domain://registry.d", { code: 404 }]];
  say("gap");
  await settled();
  assert.deepEqual(sent().sort(), [
    "create domain://registry.d",
    "subscribe domain://msg-node.d/sm",
    "update domain://registry.d",
  ]);
  assert.equal(runtime.explain(url).isRegistered, true);
  bus.close();
});

test("its address is kept by its name; a tab that finds it held takes another", async () => {
  const storage = newStorage();
  const first = begin([], { storage });
  const { url } = await first.runtime.hyperty("echo");
  first.bus.close();
  const again = begin([], { storage });
  assert.equal((await again.runtime.hyperty("echo")).url, url);
  again.bus.close();
  const held = begin([], { storage });
  held.node.answers = [["subscribe", "domain://msg-node.d/sm", { code: 403 }]];
  const making = held.runtime.hyperty("echo");
  held.bus.addListener(STUB, () => (held.node.answers = []));
  assert.notEqual((await making).url, url);
  held.bus.close();
});

test("who debugs gets a line for each decision: direction, way, message, and what was decided", async () => {
  const told = [];
  const { runtime, bus } = begin([["read", "hyperty://d/2", { code: 404 }]], {
    debug: (line) => told.push(line),
  });
  bus.onError(() => {});
  const me = await runtime.hyperty("me", { register: false });
  told.length = 0;
  await assert.rejects(me.request("hyperty://d/2", "x", { type: "read" }));
  const plain = told.map((line) => line.replace(/ \d{6,} /g, " N "));
  assert.match(
    plain[0],
    /^\d\d:\d\d:\d\d\.\d{3} out node read N hyperty:\S+ -> hyperty:\/\/d\/2: through runtime:/,
  );
  assert.match(plain[1], / in node response 404 N hyperty:\/\/d\/2 -> \S+: 1 listening$/);
  bus.postMessage({ type: "read", from: me.url, to: `${R}/nobody` });
  await settled();
  assert.match(told.at(-2), / -- none read .*: 404 Nobody listens/);
  bus.close();
  for (const [wrong, word] of [
    [{ debug: "yes" }, "debug is"],
    [{ domain: "" }, "domain"],
    [{ domain: "https://d" }, "options.domain is a domain, such as example.org"],
    [{ catalogue: {} }, "options has no catalogue: it has domain, "],
    [{ catalogues: "http://d" }, "catalogues is an object of URLs by domain"],
    [{ catalogues: { d: "d" } }, "that of d is none"],
    [{ routing: { f: "elsewhere" } }, "stub, node or stub-else-node"],
    [{ stubConfig: { d: 7 } }, "stubConfig"],
    [{ storage: {} }, "storage.getItem is a function"],
  ])
    assert.throws(
      () => newWorld(wrong),
      (error) => error instanceof TypeError && error.message.includes(word),
    );
});

test("wrong arguments of other parts are named, before anything is asked", async () => {
  const { runtime, bus, node } = begin();
  const wrong = {
    "listener is a function": [() => runtime.onIdentity(7), () => bus.addListener(R, 7)],
    "listener is a function, not 7": [() => runtime.invitations.receive(7)],
    "url is a text": [() => runtime.addHyperty(7)],
    "user is bob@example.org, a user URL, or a card": [() => runtime.invitations.send(7)],
    "hyperty is an address": [() => runtime.invitations.send("bob@f", {})],
    "mediaTypes is a list of texts": [() => runtime.qos.reserve({ mediaTypes: "video" })],
    "A syncher needs a hyperty": [() => new Syncher()],
    "A message is an object": [() => bus.postMessage(7)],
  };
  for (const [word, calls] of Object.entries(wrong))
    for (const call of calls)
      await assert.rejects(
        async () => call(),
        (error) => error instanceof TypeError && error.message.startsWith(word),
        word,
      );
  assert.deepEqual(node.sent, []);
  bus.close();
});

test("what a hyperty sends that was closed is refused at once", async () => {
  const { runtime, bus } = begin();
  bus.onError(() => {});
  const me = await runtime.hyperty("me", { register: false });
  await me.close();
  await assert.rejects(me.request("hyperty://d/2"), { code: 503, message: /was closed/ });
  me.send("hyperty://d/2", 7);
  bus.close();
});
