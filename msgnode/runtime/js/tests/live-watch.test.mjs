/** A stub that loads and never says that it is live: how long it is waited for, who is told, when it is tried again. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { AnswerError } from "../src/common.js";
import { settled } from "./fake-clock.mjs";
import { STUB, endWorld, newWorld, until } from "./world.mjs";

const LIMIT = 30_000; // ms

let runtime, bus, clock, catalogues, world, errors;

beforeEach(() => ({ runtime, bus, clock, catalogues, world, errors } = newWorld()));
afterEach(() => endWorld({ runtime, clock }));

const create = (n = 0) => ({
  type: "create",
  from: "hyperty://d/a",
  to: "hyperty://f/x",
  body: { n },
});
const answer = (message) =>
  bus.request(message).catch((error) => {
    if (!(error instanceof AnswerError)) throw error;
    return error.body;
  });
const entry = () => runtime.stubs.get("f");

/** A message is handed to stub number `count` of the domain. */
async function handed(count = 1) {
  bus.postMessage(create(count));
  await until(() => world.started[count - 1]?.sent.length, "the message");
  return world.started[count - 1];
}

test("a stub that is not live in time is as one that cannot be loaded, and who asks is told why", async () => {
  await catalogues.add("f");
  const stub = await handed();
  await clock.turn(LIMIT - 1);
  assert.equal(entry().status, "created");
  const asked = answer(create(2)); // it is handed to the stub, too
  await clock.turn(1);
  const text = "The stub of f is not available: it was not live within 30 s.";
  assert.deepEqual(await asked, { code: 503, desc: text, description: text });
  assert.deepEqual([entry().status, entry().desc], ["deployment-failed", text]);
  assert.deepEqual(stub.calls, [["disconnect"]]);
  assert.deepEqual([(await answer(create(3))).code, world.started.length], [504, 1]);
  assert.equal(runtime.counters["stub.not-live"], 1);
  assert.match(errors[0].error.message, /stub of f: it was not live/);
});

test("it is tried again with a message that comes after 5 s, then after 10, until it is live", async () => {
  await catalogues.add("f");
  const waits = [];
  for (let count = 1; count <= 3; count += 1) {
    await handed(count);
    await clock.turn(LIMIT);
    waits.push(entry().retryAt - clock.now());
    await clock.turn(waits.at(-1));
  }
  assert.deepEqual(waits, [5_000, 10_000, 20_000]);
  (await handed(4)).say("live");
  await clock.turn(LIMIT);
  assert.deepEqual([entry().status, entry().failures], ["live", 0]);
});

test("one that says in-progress again and again has no more time than any other", async () => {
  await catalogues.add("f");
  const stub = await handed();
  for (let seconds = 0; seconds < 30; seconds += 10) {
    stub.say("in-progress");
    await clock.turn(10_000);
  }
  assert.equal(entry().status, "deployment-failed");
});

for (const [what, does] of [
  ["says that it is live", (stub) => stub.say("live")],
  ["says that it is connected", (stub) => stub.say("connected")],
  ["is away, and comes back by itself", (stub) => stub.say("disconnected")],
  [
    "brings something in",
    (stub) => stub.bring({ type: "update", from: "hyperty://f/x", to: "hyperty://d/a", body: {} }),
  ],
]) {
  test(`a stub that ${what} is waited for no more`, async () => {
    await catalogues.add("f");
    const stub = await handed();
    does(stub);
    await clock.turn(LIMIT);
    assert.notEqual(entry().status, "deployment-failed");
    assert.deepEqual(stub.calls, []);
  });
}

test("a stub that has nothing to do is waited for by nobody", async () => {
  await catalogues.add("f");
  runtime.resolver.entryFor({ kind: "domain", key: "f", domain: "f" });
  await until(() => world.started.length, "the stub");
  await settled();
  await clock.turn(LIMIT);
  assert.equal(entry().status, "created");
});

test("one that is told to connect, and is silent, is as late as one with a message", async () => {
  await catalogues.add("f", STUB.replace('stub.say("in-progress"); stub.say("live");', ""));
  const connecting = runtime.connect("f");
  connecting.catch(() => {});
  await until(() => world.started[0]?.calls.length, "connect()");
  await assert.rejects(Promise.all([connecting, clock.turn(LIMIT)]), /does not answer in time/);
  await clock.turn(LIMIT);
  assert.equal(entry().status, "deployment-failed");
});

test("what one stub of a sandbox does is no other's end", async () => {
  await catalogues.add("f");
  await catalogues.add("g");
  await handed();
  bus.postMessage({ ...create(), to: "hyperty://g/x" });
  await until(() => world.started[1]?.sent.length, "the message to g");
  world.started[1].say("live");
  await clock.turn(LIMIT);
  assert.deepEqual([entry().status, runtime.stubs.get("g").status], ["deployment-failed", "live"]);
});
