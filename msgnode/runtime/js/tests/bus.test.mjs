/** The buses: the cases that both languages share, and what is JavaScript's alone. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { MessageBus, MiniBus } from "../src/index.js";
import { cases, like } from "./cases.mjs";
import { FakeClock, settled } from "./fake-clock.mjs";

const R = "runtime://d/1";
const STUB = "runtime://f/protostub/1";
const HOME = "runtime://d/protostub/home";

const isLike = (expected, found) =>
  JSON.stringify(like(expected, found)) === JSON.stringify(expected);

const are = (found, expected) =>
  assert.deepEqual(
    found.map((each, n) => like(expected[n] ?? {}, each)),
    expected,
  );

/** {"$x": [text, n]} is a text n times, {"$list": n} so many addresses. */
function named(value) {
  if (Array.isArray(value)) return value.map(named);
  if (value === null || typeof value !== "object") return value;
  if (value.$x) return value.$x[0].repeat(value.$x[1]);
  if (value.$list) return Array.from({ length: value.$list }, (_, n) => `hyperty://d/${n}`);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, named(each)]));
}

/** A message with other fields than usual; null is no body. */
function messageTo(to, more) {
  const message = { type: "read", from: "hyperty://d/a", to, body: { n: 1 }, ...more };
  if (message.body === null) delete message.body;
  return message;
}

/** A bus, what left it, and where that goes. */
class Side {
  sent = [];
  other = null;
  errors = [];

  constructor(url, stub, clock) {
    this.stub = stub;
    this.bus = new MessageBus(url, { clock });
    this.bus.onError((error) => this.errors.push(error));
    this.bus.resolver = { route: (_, via) => via ?? stub, isHome: (via) => via === HOME };
    for (const each of [stub, HOME])
      this.bus.addListener(each, (message) => {
        this.sent.push({ ...message, through: each });
        assert.ok(!this.other || this.sent.length < 20, "it goes round");
        this.other?.bus.postFrom(this.other.stub, message);
      });
  }
}

/** The steps of a case: a bus with listeners, handlers and a way outside. */
class Play {
  #clock = new FakeClock();
  #sides = { d: new Side(R, STUB, this.#clock) };
  #side = this.#sides.d;
  #heard = {};
  #order = [];
  #answers = {};
  #handled = {};
  #deciding = {};
  #items = {};

  async steps(steps) {
    for (const step of steps) {
      const done = this.#act(step);
      if (done instanceof Promise) await done; // else not even a microtask passes
    }
  }

  #act([act, ...words]) {
    return this[act](...words.map(named));
  }

  // --- what happens -------------------------------------------------------------------------------

  settle = settled;
  wait = (milliseconds) => this.#clock.turn(milliseconds);

  async repeat(times, ...steps) {
    for (let n = 0; n < times; n += 1) await this.steps(steps);
  }

  /** A runtime of f; each of the two reaches everything through the other. */
  neighbour() {
    const [d, f] = [this.#side, new Side("runtime://f/1", "runtime://d/protostub/1", this.#clock)];
    [d.other, f.other, this.#sides.f] = [f, d, f];
  }

  at = (name) => (this.#side = this.#sides[name]);

  listen(name, to, ...reactions) {
    this.#heard[name] = [];
    this.#items[name] = this.#side.bus.addListener(to, (message) => {
      this.#heard[name].push(message);
      this.#order.push([name, message.body?.n ?? 1]);
      for (const each of reactions) this.#react(name, message, each);
    });
  }

  #react(name, message, [act, ...words]) {
    if (act === "change") message.body.list.push("changed");
    else if (act === "fail") throw new Error("out of order");
    else if (act === "replies") this.reply(name, { code: words[this.#heard[name].length - 1] });
    else if (act !== "if") this.#act([act, ...words]);
    else if (isLike(words[0], message)) this.#react(name, message, words[1]);
  }

  #waits(name) {
    const answers = (this.#answers[name] ??= []);
    return (answer) => answers.push(answer);
  }

  post(to, more, name) {
    const message = messageTo(to, more);
    this.#side.bus.postMessage(message, name ? this.#waits(name) : null);
    if (message.body) message.body.late = true;
  }

  retry(to, more, times, name) {
    this.#side.bus.postMessageWithRetries(messageTo(to, more), times, this.#waits(name));
  }

  comes(to, more, stub = this.#side.stub) {
    this.#side.bus.postFrom(stub, messageTo(to, { id: 1, ...more }));
  }

  reply(name, body, more) {
    const { id, from, to } = this.#heard[name].at(-1);
    this.#side.bus.postMessage({ id, type: "response", from: to, to: from, body, ...more });
  }

  expect = (address, id, name) =>
    this.#side.bus.addResponseListener(address, id, this.#waits(name));
  leave = (address) => this.#side.bus.removeAllListenersOf(address);
  close = () => this.#side.bus.close();
  publish = (name, address) => (this.#items[name] = this.#side.bus.addPublish(address));
  forward = (name, from, to) => (this.#items[name] = this.#side.bus.addForward(from, to));
  remove = (name) => this.#items[name].remove();

  /** A handler that decides later, fails, or has this result, of what is like `match`. */
  handle(direction, name, match, result) {
    const { pipelineIn, pipelineOut } = this.#side.bus;
    this.#handled[name] = [];
    (direction === "in" ? pipelineIn : pipelineOut).use((message) => {
      this.#handled[name].push(message);
      if (!isLike(match, message)) return undefined;
      if (result === "fail") throw new Error("out of order");
      if (result !== "later") return result ?? undefined;
      return new Promise((resolve) => (this.#deciding[name] = { message, resolve }));
    });
  }

  /** The handler that thought about a message lets it pass, with more in its body. */
  let(name, more) {
    const { message, resolve } = this.#deciding[name];
    resolve({ ...message, body: { ...message.body, ...more } });
  }

  quiet = () => (this.#order.length = 0);

  // --- what is so ---------------------------------------------------------------------------------

  heard = (name, ...expected) => are(this.#heard[name], expected);
  handled = (name, ...expected) => are(this.#handled[name], expected);
  sent = (...expected) => are(this.#side.sent, expected);
  order = (...expected) => assert.deepEqual(this.#order, expected);
  counter = (name, count) => assert.equal(this.#side.bus.counters[name], count);
  fewer = (name, count) => assert.ok(this.#heard[name].length < count);
  timers = (count) => assert.equal(this.#clock.timers, count);

  answered = (name, ...expected) =>
    are(
      this.#answers[name] ?? [],
      expected.map((each) => (typeof each === "number" ? { body: { code: each } } : each)),
    );

  faults = (...reasons) =>
    assert.deepEqual(
      this.#side.errors.map(({ reason }) => reason),
      reasons,
    );

  errors = (count, length) =>
    assert.deepEqual(
      this.#side.bus.errors.map(({ text }) => text.length),
      Array(count).fill(length),
    );

  /** "+1" is one more than the first, which differs from one bus to the next. */
  ids(name, ...expected) {
    const found = this.#heard[name].map(({ id }) => id);
    const idOf = (each) => (/^\+\d$/.test(each) ? found[0] + Number(each) : each);
    assert.deepEqual(found, expected.map(idOf));
  }
}

for (const { name, steps } of await cases("bus")) test(name, () => new Play().steps(steps));

// --- what is JavaScript's alone ---------------------------------------------------------------------

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

test("the header of a message cannot be changed", async () => {
  const [here, there] = [got("comm://d/o"), got("comm://d/o")];
  bus.postMessage(read("comm://d/o"));
  await settled();
  assert.throws(() => (here[0].to = "comm://d/other"), TypeError);
  assert.notEqual(here[0], there[0]);
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
