/** The buses: cases R1 to R20 and R73 of the runtime, and rules B1 to B13. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { AnswerError, MessageBus, MiniBus } from "../src/index.js";
import { FakeClock, settled } from "./fake-clock.mjs";

const R = "runtime://d/1";
const STUB = "runtime://f/protostub/1";

let clock;
let bus;
let errors;

beforeEach(() => {
  clock = new FakeClock();
  bus = new MessageBus(R, { clock });
  errors = [];
  bus.onError((error) => errors.push(error));
});

const read = (to, more = {}) => ({ type: "read", from: `${R}/a`, to, body: { n: 1 }, ...more });
const got = (url, on = bus) => {
  const messages = [];
  on.addListener(url, (message) => messages.push(message));
  return messages;
};
/** A resolver that says who would be asked, and a stub that keeps what it is handed. */
const outside = (stubURL = STUB) => {
  const asked = [];
  const sent = got(stubURL);
  bus.resolver = { route: (message) => (asked.push(message), stubURL) };
  return { asked, sent };
};

test("R1 each listener gets an equal message of its own", async () => {
  const seen = [];
  bus.addListener("comm://d/o", (message) => {
    message.body.list.push("changed");
    seen.push(message);
  });
  bus.addListener("comm://d/o", (message) => seen.push(message));
  const sent = read("comm://d/o", { body: { list: [1, { a: null }] } });
  bus.postMessage(sent);
  sent.body.list.push("changed by the sender");
  await settled();
  assert.deepEqual(seen[1].body, { list: [1, { a: null }] });
  assert.deepEqual(seen[0].body, { list: [1, { a: null }, "changed"] });
  assert.throws(() => (seen[0].to = "comm://d/other"), TypeError);
  assert.notEqual(seen[0], seen[1]);
});

test("R2 a listener that throws stops neither the second nor the post", async () => {
  bus.addListener("comm://d/o", () => {
    throw new Error("out of order");
  });
  const second = got("comm://d/o");
  assert.equal(typeof bus.postMessage(read("comm://d/o")), "number");
  await settled();
  assert.equal(second.length, 1);
  assert.deepEqual(
    errors.map(({ reason, error }) => [reason, error.message]),
    [["listener.failed", "out of order"]],
  );
});

test("R2 a listener whose promise is rejected is reported too", async () => {
  bus.addListener("comm://d/o", () => Promise.reject(new Error("late")));
  bus.postMessage(read("comm://d/o"));
  await settled();
  assert.deepEqual(
    errors.map(({ error }) => error.message),
    ["late"],
  );
});

test("R3 a listener that removes itself or the next one skips no other", async () => {
  const called = [];
  const first = bus.addListener(
    "comm://d/o",
    () => (called.push("first"), first.remove(), third.remove()),
  );
  bus.addListener("comm://d/o", () => called.push("second"));
  const third = bus.addListener("comm://d/o", () => called.push("third"));
  bus.addListener("comm://d/o", () => called.push("fourth"));
  bus.postMessage(read("comm://d/o"));
  await settled();
  assert.deepEqual(called, ["first", "second", "fourth"]);
});

test("R4 a listener that posts is not entered again before all have got the message", async () => {
  const order = [];
  let isInside = false;
  bus.addListener("comm://d/o", ({ body }) => {
    assert.equal(isInside, false);
    isInside = true;
    order.push(`first ${body.n}`);
    if (body.n === 1) bus.postMessage(read("comm://d/o", { body: { n: 2 } }));
    isInside = false;
  });
  bus.addListener("comm://d/o", ({ body }) => order.push(`second ${body.n}`));
  bus.postMessage(read("comm://d/o"));
  assert.deepEqual(order, [], "a post calls nobody");
  await Promise.resolve();
  assert.deepEqual(order, ["first 1", "second 1", "first 2", "second 2"]);
});

test("B1 listeners that post for ever let the event loop go on", async () => {
  let count = 0;
  const item = bus.addListener("comm://d/o", () => {
    count += 1;
    bus.postMessage(read("comm://d/o"));
  });
  bus.postMessage(read("comm://d/o"));
  await settled();
  await settled();
  item.remove();
  assert.ok(count >= 10_000);
});

test("R5 sender and id are never joined to one text", async () => {
  const answers = [];
  bus.addListener("comm://d/o", ({ id, from, to }) =>
    bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200, value: from } }),
  );
  bus.postMessage(read("comm://d/o", { id: 1, from: "comm://d/a1" }), ({ body }) =>
    answers.push(["a1", body.value]),
  );
  bus.postMessage(read("comm://d/o", { id: 11, from: "comm://d/a" }), ({ body }) =>
    answers.push(["a", body.value]),
  );
  await settled();
  assert.deepEqual(answers, [
    ["a1", "comm://d/a1"],
    ["a", "comm://d/a"],
  ]);
});

test("R6 an answer with the id as a number ends the wait for the text", async () => {
  const answers = [];
  bus.addListener("comm://d/o", ({ from, to }) =>
    bus.postMessage({ id: 7, type: "response", from: to, to: from, body: { code: 200 } }),
  );
  bus.postMessage(read("comm://d/o", { id: "7" }), (answer) => answers.push(answer));
  await settled();
  assert.deepEqual(
    answers.map(({ from, to }) => [from, to]),
    [["comm://d/o", `${R}/a`]],
  );
});

test("R7 provisional answers begin the time-out anew", async () => {
  const requests = got("comm://d/o");
  const codes = [];
  bus.postMessage(read("comm://d/o"), ({ body }) => codes.push(body.code));
  await settled();
  for (const code of [100, 100, 200]) {
    await clock.turn(10_000);
    const [{ id, from, to }] = requests;
    bus.postMessage({ id, type: "response", from: to, to: from, body: { code } });
    await settled();
  }
  await clock.turn(60_000);
  assert.deepEqual(codes, [100, 100, 200]);
});

test("R7 ten times at most", async () => {
  const requests = got("comm://d/o");
  const codes = [];
  bus.postMessage(read("comm://d/o"), ({ body }) => codes.push(body.code));
  await settled();
  for (let round = 0; round < 12; round += 1) {
    const [{ id, from, to }] = requests;
    bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 100 } });
    await settled();
    await clock.turn(10_000);
  }
  assert.deepEqual(codes, [...Array(11).fill(100), 408]);
});

test("R8 no answer is 408 after 15 s, and a late one goes to listeners, else it is counted", async () => {
  const requests = got("comm://d/o");
  const answers = [];
  const sent = read("comm://d/o", { id: 9 });
  bus.postMessage(sent, (answer) => answers.push(answer));
  await settled();
  await clock.turn(14_999);
  assert.deepEqual(answers, []);
  await clock.turn(1);
  const [late] = answers;
  assert.deepEqual([late.from, late.to, late.id, late.type], [undefined, undefined, 9, "response"]);
  assert.equal(late.body.code, 408);
  assert.equal(late.body.desc, "Response timeout!");
  assert.deepEqual(late.body.value, sent);
  const answer = {
    id: 9,
    type: "response",
    from: "comm://d/o",
    to: requests[0].from,
    body: { code: 200 },
  };
  bus.postMessage(answer);
  await settled();
  assert.equal(bus.counters["answers.unexpected"], 1);
  const listener = got(`${R}/a`);
  bus.postMessage(answer);
  await settled();
  assert.equal(listener.length, 1);
  assert.equal(answers.length, 1);
});

test("R8 the last answer leaves no timer behind", async () => {
  bus.addListener("comm://d/o", ({ id, from, to }) =>
    bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200 } }),
  );
  await bus.request(read("comm://d/o"));
  assert.equal(clock.timers, 0);
});

for (const [code, read_] of [
  ["200", 200],
  ["2XX", 200],
  [404, 404],
  ["error", 500],
  [undefined, 500],
]) {
  test(`R9 an answer with the code ${code} is final and read as ${read_}`, async () => {
    bus.addListener("comm://d/o", ({ id, from, to }) =>
      [1, 2].forEach(() =>
        bus.postMessage({ id, type: "RESPONSE", from: to, to: from, body: { code } }),
      ),
    );
    const codes = [];
    bus.postMessage(read("comm://d/o"), ({ body }) => codes.push(body.code));
    await settled();
    assert.deepEqual(codes, [read_]);
  });
}

test("R9 an answer without a body is 500, once", async () => {
  bus.addListener("comm://d/o", ({ id, from, to }) =>
    bus.postMessage({ id, type: "response", from: to, to: from }),
  );
  await assert.rejects(
    bus.request(read("comm://d/o")),
    (error) => error instanceof AnswerError && error.code === 500,
  );
});

test("R10 a list of recipients with a repeat is two copies", async () => {
  const one = got("comm://d/1");
  const two = got("comm://d/2");
  bus.postMessage(read(["comm://d/1", "comm://d/2", "comm://d/1"]));
  await settled();
  assert.deepEqual(
    [...one, ...two].map(({ to }) => to),
    ["comm://d/1", "comm://d/2"],
  );
});

test("R10 more than 100 recipients are refused with 400", async () => {
  const to = Array.from({ length: 101 }, (_, index) => `comm://d/${index}`);
  await assert.rejects(bus.request(read(to)), ({ code }) => code === 400);
});

test("R11 a MiniBUS sends out what somebody there listens to; it comes back once", async () => {
  const minibus = new MiniBus((message) => bus.postMessage(message), { clock });
  const here = got("hyperty://d/x", minibus);
  bus.addListener("hyperty://d/x", (message) => minibus.receive(message));
  const passing = [];
  bus.addListener("hyperty://d/x", (message) => passing.push(message));
  minibus.postMessage(read("hyperty://d/x", { from: "hyperty://d/y" }));
  assert.deepEqual(here, []);
  await settled();
  assert.equal(here.length, 1);
  assert.equal(passing.length, 1);
});

test("R12 the listeners of * on a MiniBUS", async () => {
  const minibus = new MiniBus(() => {}, { clock });
  const all = got("*", minibus);
  const hyperty = got("hyperty://d/x", minibus);
  const object = got("comm://d/o", minibus);
  for (const to of ["hyperty://d/x", "comm://d/o", "hyperty://d/nobody"])
    minibus.receive(read(to, { id: 1 }));
  await settled();
  assert.deepEqual([hyperty.length, object.length], [1, 1]);
  assert.deepEqual(
    all.map(({ to }) => to),
    ["comm://d/o", "hyperty://d/nobody"],
  );
});

test("R13 removing the listeners of an address answers what it waits for with 503", async () => {
  got("comm://d/o");
  const codes = [];
  bus.addListener(`${R}/a`, () => {});
  bus.postMessage(read("comm://d/o"), ({ body }) => codes.push(body.code));
  await settled();
  bus.removeAllListenersOf(`${R}/a`);
  assert.deepEqual(codes, [503]);
  assert.equal(bus.isLocal("comm://d/none"), false);
});

test("R14 runtime://d/10 is not below runtime://d/1", async () => {
  const { sent } = outside();
  bus.postMessage(read("runtime://d/10/x"));
  bus.postMessage(read("comm://x/runtime://d/1"));
  await settled();
  assert.deepEqual(
    sent.map(({ to }) => to),
    ["runtime://d/10/x", "comm://x/runtime://d/1"],
  );
});

test("R15 nobody below the own runtime is 404, and silent for a status", async () => {
  const { asked } = outside();
  await assert.rejects(
    bus.request(read(`${R}/nobody`)),
    ({ code, message }) => code === 404 && message.includes(`${R}/nobody`),
  );
  const answers = got(`${R}/a`);
  bus.postMessage({
    type: "update",
    from: `${R}/a`,
    to: `${R}/nobody/status`,
    body: { value: "live" },
  });
  await settled();
  assert.deepEqual([answers, asked], [[], []]);
  assert.equal(bus.counters["undeliverable.404"], 2);
  for (let n = 0; n < 30; n += 1) bus.postMessage(read(`${R}/nobody/${"x".repeat(400)}`));
  await settled();
  assert.deepEqual([...new Set(bus.errors.map(({ text }) => text.length))], [300]);
  assert.equal(bus.errors.length, 20); // the last, for who debugs
});

test("R16 both spellings of the own runtime are one", async () => {
  const sm = got(`${R}/sm`);
  bus.postMessage(read("hyperty-runtime://d/1/sm"));
  await settled();
  assert.equal(sm.length, 1);
});

test("R17 what came in is never sent to a stub", async () => {
  const { asked, sent } = outside();
  bus.postFrom(STUB, read("hyperty://f/x", { id: 3, from: "hyperty://f/y" }));
  await settled();
  assert.deepEqual(
    asked.map(({ type, to }) => [type, to]),
    [["response", "hyperty://f/y"]],
  );
  assert.deepEqual(sent[0].body.code, 404);
});

test("R18 a message over the limit is 413 at once and is not sent", async () => {
  const { sent } = outside();
  const at = [];
  bus.postMessage(read("comm://f/o", { body: { text: "é".repeat(600_000) } }), ({ body }) =>
    at.push(body.code),
  );
  await Promise.resolve();
  assert.deepEqual(at, [413]);
  bus.postMessage(read("comm://f/o", { body: { text: "e".repeat(1_048_000) } }));
  await settled();
  assert.equal(sent.length, 1);
});

test("R19 a publication ends when it was removed as often as it was made", async () => {
  const { sent } = outside();
  got("comm://d/o/changes");
  const first = bus.addPublish("comm://d/o/changes");
  const second = bus.addPublish("comm://d/o/changes");
  const change = () => {
    bus.postMessage({
      type: "update",
      from: "comm://d/o",
      to: "comm://d/o/changes",
      body: { version: 1 },
    });
    return settled();
  };
  first.remove();
  first.remove();
  await change();
  assert.equal(sent.length, 1);
  second.remove();
  await change();
  assert.equal(sent.length, 1);
});

test("R20 what came in for a published address goes to local listeners only", async () => {
  const { sent } = outside();
  const here = got("comm://d/o/changes");
  bus.addPublish("comm://d/o/changes");
  bus.postFrom(STUB, {
    type: "update",
    from: "comm://d/o",
    to: "comm://d/o/changes",
    body: { version: 1 },
  });
  await settled();
  assert.deepEqual([here.length, sent.length], [1, 0]);
  assert.equal(here[0].body.via, STUB);
});

/** Buses of d and f, each of which reaches everything through the other; what left each. */
function twoThatForward() {
  const [d, f] = [R, "runtime://f/1"].map((url) => ({
    bus: new MessageBus(url, { clock }),
    sent: [],
  }));
  for (const [one, other, stubURL] of [
    [d, f, STUB],
    [f, d, "runtime://d/protostub/1"],
  ]) {
    one.stubURL = stubURL;
    one.bus.resolver = { route: () => stubURL };
    one.bus.addListener(stubURL, (message) => {
      one.sent.push(message);
      assert.ok(one.sent.length < 20, "it goes round");
      other.bus.postFrom(other.stubURL, message);
    });
  }
  return [d, f];
}

test("R73 what two runtimes both publish is delivered once in each", async () => {
  const [d, f] = twoThatForward();
  const address = "comm://d/o/changes";
  const update = (from) => ({ type: "update", from, to: address, body: { version: 1 } });
  for (const each of [d, f]) {
    each.got = got(address, each.bus);
    each.bus.addPublish(address);
  }
  d.bus.postMessage(update("comm://d/o"));
  f.bus.postMessage(update("comm://f/o"));
  await settled();
  for (const { got: all, sent, stubURL } of [d, f]) {
    assert.deepEqual(all.map(({ body }) => body.via).sort(), [stubURL, undefined]);
    assert.equal(sent.length, 1);
  }
});

test("R73 what neither of two runtimes has is 404 after one crossing", async () => {
  const [d, f] = twoThatForward();
  await assert.rejects(d.bus.request(read("hyperty://g/y")), { code: 404 });
  assert.deepEqual(
    [d, f].map(({ sent }) => sent.map(({ type }) => type)),
    [["read"], ["response"]],
  );
});

test("R38 a message without a body passes", async () => {
  const { sent } = outside();
  const here = got("comm://d/o");
  bus.postMessage({ type: "read", from: `${R}/a`, to: "comm://d/o" });
  bus.postMessage({ type: "read", from: `${R}/a`, to: "comm://f/o" });
  bus.postFrom(STUB, { type: "read", from: "comm://f/a", to: "comm://d/o" });
  await settled();
  assert.deepEqual(
    here.map(({ body }) => body),
    [undefined, { via: STUB }],
  );
  assert.equal(sent.length, 1);
});

test("R55 a message blocked on its way out is 403 to its sender, on its way in to the remote", async () => {
  const { sent } = outside();
  bus.pipelineOut.use(
    ({ to }) => to.endsWith("forbidden") && { code: 403, desc: "Blocked by policy (out)" },
  );
  bus.pipelineIn.use(() => ({ code: 403, desc: "Blocked by policy (in)" }));
  await assert.rejects(
    bus.request({ type: "create", from: "hyperty://d/a", to: "hyperty://f/forbidden" }),
    ({ code, body }) =>
      code === 403 && body.desc === body.description && body.desc.includes("(out)"),
  );
  const here = got("hyperty://d/a");
  bus.postFrom(STUB, {
    id: 4,
    type: "create",
    from: "hyperty://f/x",
    to: "hyperty://d/a",
    body: {},
  });
  await settled();
  assert.deepEqual(here, []);
  assert.deepEqual(
    sent.map(({ to, body }) => [to, body.code]),
    [["hyperty://f/x", 403]],
  );
});

test("R56 pipelines are not asked about what stays inside, answers and reads", async () => {
  outside();
  const judged = [];
  bus.pipelineOut.use(({ type, to }) => void judged.push([type, to]));
  got("hyperty://d/b");
  bus.postMessage({ type: "create", from: "hyperty://d/a", to: "hyperty://d/b" });
  bus.postMessage({ type: "read", from: "hyperty://d/a", to: "hyperty://f/b" });
  bus.postMessage({
    id: 1,
    type: "response",
    from: "hyperty://d/a",
    to: "hyperty://f/b",
    body: { code: 200 },
  });
  bus.postMessage({ type: "delete", from: "hyperty://d/a", to: "comm://f/b" });
  bus.postMessage({ type: "create", from: `${R}/sm`, to: "domain://msg-node.d/sm" });
  bus.postMessage({ type: "create", from: "hyperty://d/a", to: "hyperty://f/b" });
  await settled();
  assert.deepEqual(judged, [["create", "hyperty://f/b"]]);
});

test("R57 a hyperty whose path contains p2phandler is judged; a P2P stub is not", async () => {
  outside();
  const judged = [];
  bus.pipelineOut.use(({ to }) => void judged.push(to));
  for (const to of [
    "hyperty://f/p2phandler/1",
    "comm://f/x/p2phandler/2",
    "runtime://f/1/p2phandler/3",
  ]) {
    bus.postMessage({ type: "create", from: "hyperty://d/a", to });
  }
  await settled();
  assert.deepEqual(judged, ["hyperty://f/p2phandler/1", "comm://f/x/p2phandler/2"]);
});

test("B9 order is kept while a handler takes its time, and others do not wait", async () => {
  const { sent } = outside();
  let release;
  bus.pipelineOut.use(
    (message) => message.body.n === 1 && new Promise((resolve) => (release = () => resolve())),
  );
  for (const n of [1, 2, 3])
    bus.postMessage({ type: "create", from: "hyperty://d/a", to: "hyperty://f/b", body: { n } });
  bus.postMessage({ type: "create", from: "hyperty://d/a", to: "hyperty://f/c", body: { n: 4 } });
  await settled();
  assert.deepEqual(
    sent.map(({ body }) => body.n),
    [4],
  );
  release();
  await settled();
  assert.deepEqual(
    sent.map(({ body }) => body.n),
    [4, 1, 2, 3],
  );
});

test("B9 a handler that never answers is 503 after 10 s", async () => {
  outside();
  bus.pipelineOut.use(() => new Promise(() => {}));
  const codes = [];
  bus.postMessage({ type: "create", from: "hyperty://d/a", to: "hyperty://f/b" }, ({ body }) =>
    codes.push(body.code),
  );
  await settled();
  await clock.turn(10_000);
  assert.deepEqual(codes, [503]);
});

test("B9 no more than a thousand messages wait behind handlers", async () => {
  outside();
  bus.pipelineOut.use(() => new Promise(() => {}));
  const codes = [];
  for (let n = 0; n < 1002; n += 1) {
    bus.postMessage({ type: "create", from: "hyperty://d/a", to: "hyperty://f/b" }, ({ body }) =>
      codes.push(body.code),
    );
  }
  await settled();
  assert.deepEqual(codes, [503]);
});

test("B10 an error answer that nobody takes is reported in a sandbox too, and others are counted", async () => {
  const sent = [];
  const mini = new MiniBus((message) => sent.push(message));
  const told = [];
  mini.onError((fault) => told.push(fault));
  const id = mini.postMessage({ type: "read", from: "hyperty://d/a", to: "comm://d/nobody" });
  assert.ok(id);
  assert.equal(sent[0].id, id);
  const answer = (code) => ({
    id,
    type: "response",
    from: "comm://d/nobody",
    to: "hyperty://d/a",
    body: { code },
  });
  mini.receive(answer(200));
  mini.receive(answer(400));
  await settled();
  assert.deepEqual(
    told.map(({ reason, error }) => [reason, error.code]),
    [["answers.unexpected", 400]],
  );
  assert.equal(mini.counters["answers.unexpected"], 2);
});

test("B10 an error answer that nobody takes is reported", async () => {
  outside();
  bus.postMessage({
    id: 1,
    type: "response",
    from: "comm://f/x",
    to: `${R}/gone`,
    body: { code: 404 },
  });
  await settled();
  assert.deepEqual(
    errors.map(({ reason }) => reason),
    ["answers.unexpected"],
  );
});

test("every message gets an id, and an explicit one does not move the counter", async () => {
  const here = got("comm://d/o");
  for (const id of [undefined, 0, "", 77]) bus.postMessage(read("comm://d/o", { id }));
  bus.postMessage({ type: "update", from: STUB, to: "comm://d/o" });
  await settled();
  const first = here[0].id; // which differs from one bus to the next
  assert.deepEqual(
    here.map(({ id }) => id),
    [first, first + 1, first + 2, 77, first + 3],
  );
});

test("retries: 408 and 500 are asked again, any other code ends it", async () => {
  const codes = [500, 500, 404];
  let asked = 0;
  bus.addListener("comm://d/o", ({ id, from, to }) => {
    bus.postMessage({ id, type: "response", from: to, to: from, body: { code: codes[asked] } });
    asked += 1;
  });
  const code = await new Promise((resolve) =>
    bus.postMessageWithRetries(read("comm://d/o"), 5, ({ body }) => resolve(body.code)),
  );
  assert.deepEqual([code, asked], [404, 3]);
});

test("addForward gives the message unchanged to the listeners of another address", async () => {
  const here = got("comm://d/copy");
  const item = bus.addForward("comm://d/o", "comm://d/copy");
  bus.postMessage(read("comm://d/o"));
  await settled();
  item.remove();
  assert.deepEqual(
    here.map(({ to }) => to),
    ["comm://d/o"],
  );
});

test("what is no message, or cannot travel, is a TypeError that says what is wrong", () => {
  assert.throws(() => bus.postMessage(null), /A message is an object/);
  assert.throws(() => bus.postMessage({ from: "a", to: "b" }), /needs a type/);
  assert.throws(() => bus.postMessage({ type: "read", to: "b" }), /needs a from/);
  assert.throws(() => bus.postMessage({ type: "read", from: "a" }), /needs a to/);
  assert.throws(
    () => bus.postMessage(read("b", { body: { call() {} } })),
    /cannot carry a function/,
  );
  let deep = {};
  for (let depth = 0; depth < 300; depth += 1) deep = { deep };
  assert.throws(() => bus.postMessage(read("b", { body: deep })), /nested deeper/);
});

test("a key __proto__ in a body is a key like any other", async () => {
  const here = got("comm://d/o");
  bus.postMessage(read("comm://d/o", { body: JSON.parse('{"__proto__": {"isAdmin": true}}') }));
  await settled();
  assert.equal(here[0].body.isAdmin, undefined);
  assert.deepEqual(Object.keys(here[0].body), ["__proto__"]);
});

test("body.via of a sender is removed: the core alone says how a message came", async () => {
  const { sent } = outside();
  bus.postMessage(read("comm://f/o", { body: { via: STUB, n: 1 } }));
  await settled();
  assert.deepEqual(sent[0].body, { n: 1 });
});
