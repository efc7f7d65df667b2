/** Data objects: the cases that both languages share, and what is JavaScript's alone. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { answerTo } from "../src/messages.js";
import { BadChange, applyChange } from "../src/syncher/changes.js";
import { Follower } from "../src/syncher/follower.js";
import { requestInParts } from "../src/syncher/objects.js";
import { observe } from "../src/syncher/observed.js";
import { cases } from "./cases.mjs";
import { settled } from "./fake-clock.mjs";
import { FakeNode } from "./peers.mjs";
import { Play } from "./syncher-play.mjs";

for (const { name, steps, ...options } of await cases("syncher"))
  test(name, async () => {
    const play = new Play(options);
    await play.steps(steps);
    play.end_();
  });

// --- what is JavaScript's alone ----------------------------------------------------------------------

let node, alice, bob;

beforeEach(() => {
  node = new FakeNode();
  [alice, bob] = [node.peer(), node.peer()];
});
afterEach(() => {
  for (const peer of node.peers) peer.close();
  assert.equal(node.clock.timers, 0, "closed runtimes leave no timer");
});

/** An object of Alice's and Bob's copy of it. */
async function shared(
  data = { title: "Picnic", guests: ["Ann", "Ben"], at: { place: { name: "park" } } },
  options,
) {
  const object = await alice.syncher.create(data, options);
  const copy = await bob.syncher.subscribe(object.url);
  const changes = [];
  copy.onChange((change) => changes.push(change));
  return { object, copy, changes };
}

const same = (copy, object) =>
  assert.deepEqual(JSON.parse(JSON.stringify(copy.data)), JSON.parse(JSON.stringify(object.data)));
const toBob = (message) => bob.bus.postFrom(bob.stub, message);
const rejects = (promise, code) => assert.rejects(promise, (error) => error.code === code);

test("R64 every way to change an object reaches the observers", async () => {
  const { object, copy } = await shared({
    title: "a",
    list: [1, 2, 3, 4, 5],
    deep: { er: { name: "x" }, rows: [{ n: 1 }, { n: 2 }] },
  });
  const { data } = object;
  const ways = [
    () => data.list.splice(1, 0, "in", "between"),
    () => data.list.splice(2, 2),
    () => delete data.title,
    () => (data.deep.er.name = "y"),
    () => (data.list[0] = { now: "an object" }),
    () => (data.list[0].now = null),
    () => data.list.push(7, 8),
    () => data.list.unshift(0),
    () => [data.list.pop(), data.list.shift()],
    () => (data.list.length = 2),
    () => (data.list[data.list.length] = "last"),
    () => data.deep.rows.reverse(),
    () => (data.deep.rows[0].n = 20),
    () => data.deep.rows.sort((a, b) => a.n - b.n),
    () => data.deep.rows.forEach((row) => (row.n += 1)),
    () => (data.fresh = { list: [[1], [2]] }),
    () => data.fresh.list[1].push(3),
    () => Object.assign(data, { a: 1, b: [true] }),
    () => (data.b = undefined),
  ];
  for (const [index, way] of ways.entries()) {
    way();
    await settled();
    same(copy, object);
    assert.equal(copy.version, object.version, `way ${index}`);
  }
  assert.equal(node.sent("read", object.url).length, 0);
});

test("random changes reach the observers, whatever is doubled, late or lost on the way", async () => {
  let seed = 7;
  const random = (n) => ((seed = (seed * 1103515245 + 12345) % 2147483648) >> 8) % n;
  const { object, copy } = await shared({ list: [], map: {} });
  const late = [];
  node.copies = (message) => {
    if (message.to !== `${object.url}/changes`) return 1;
    const fate = random(10);
    if (fate === 0) return 0;
    if (fate === 1) late.push(message);
    return fate === 1 ? 0 : fate === 2 ? 2 : 1;
  };
  for (let n = 0; n < 400; n += 1) {
    const { list, map } = object.data;
    const way = random(5);
    if (way === 0) list.push({ n });
    else if (way === 1 && list.length) list.splice(random(list.length), 1 + random(2), n);
    else if (way === 2) map[`k${random(20)}`] = { n, more: [n] };
    else if (way === 3) delete map[`k${random(20)}`];
    else if (list.length && typeof list[0] === "object") list[0].n = -n;
    if (random(4) === 0) while (late.length) toBob(late.shift());
    await node.turn(50);
  }
  node.copies = () => 1;
  object.data.end = true;
  await node.turn(5_000);
  same(copy, object);
  assert.equal(copy.version, object.version);
});

test("children of a reporter that does not confirm them are taken from who sends them", async () => {
  const { copy } = await shared();
  const carol = node.peer();
  carol.bus.addListener("comm://d/field/subscription", ({ id, from, to }) =>
    carol.bus.postMessage({
      id,
      type: "response",
      from: to,
      to: from,
      body: { code: 200, value: { name: "f", reporter: "hyperty://d/x", data: {}, version: 3 } },
    }),
  );
  node.subscribers.set("comm://d/field/subscription", new Set([carol]));
  const field = await bob.syncher.subscribe("comm://d/field");
  await field.addChild({ text: "mine" });
  toBob({
    id: 7,
    type: "create",
    from: "hyperty://d/y",
    to: "comm://d/field/children/",
    body: { resource: "y#1", value: { text: "theirs" } },
  });
  await settled();
  assert.deepEqual(
    field.children.map(({ value }) => value.text),
    ["mine", "theirs"],
  );
  toBob({
    id: 8,
    type: "create",
    from: "hyperty://d/y",
    to: `${copy.url}/children/`,
    body: { resource: "y#1", value: {} },
  });
  await settled();
  assert.deepEqual(copy.children, []);
});

test("what is no data is refused and changes nothing", async () => {
  const { object, copy } = await shared();
  const { data } = object;
  const loop = {};
  loop.loop = loop;
  for (const value of [
    () => {},
    Symbol("s"),
    NaN,
    2 ** 60,
    new Date(),
    new Map(),
    loop,
    { "a.b": 1 },
    { "": 1 },
    1n,
    "😀".slice(0, 1),
    { "\ude00": 1 },
  ]) {
    assert.throws(() => (data.title = value), TypeError);
    await assert.rejects(alice.syncher.create({ value }), TypeError);
  }
  assert.throws(() => (data["a.b"] = 1), TypeError);
  assert.throws(() => (data.guests[9] = 1), TypeError);
  assert.throws(() => delete data.guests[0], TypeError);
  assert.throws(() => (data.title = "x".repeat(600_000)), RangeError);
  assert.throws(() => (copy.data.title = "mine"), TypeError);
  assert.throws(() => copy.data.guests.push("Bob"), TypeError);
  const part = data.at;
  data.at = { place: { name: "lake" } };
  assert.throws(() => (part.place = 1), TypeError);
  await settled();
  assert.equal(data.title, "Picnic");
  same(copy, object);
  await assert.rejects(alice.syncher.create([]), TypeError);
  await assert.rejects(bob.syncher.subscribe("nonsense"), TypeError);
});

test("a subscription that nobody answers is repeated", async () => {
  const object = await alice.syncher.create({ n: 1 });
  const other = node.peer();
  node.copies = ({ type, to }) => (type === "response" && to === `${other.url}/sm` ? 0 : 1);
  const second = other.syncher.subscribe(object.url); // the node's answer is lost, without a word of the line
  await node.turn(1_000);
  node.copies = () => 1;
  await node.turn(15_000);
  assert.equal((await second).data.n, 1);
});

test("a syncher leaves when its runtime closes, and holds it up only for others", async () => {
  const { object, copy } = await shared();
  const close = () =>
    bob.bus.request({
      type: "execute",
      from: `${bob.url}/registry/`,
      to: bob.hyperty,
      body: { method: "close" },
    });
  const others = bob.bus.addListener(bob.hyperty, () => {});
  let isAnswered = false;
  close().then(
    () => (isAnswered = true),
    () => {},
  );
  await settled();
  assert.deepEqual([copy.status, isAnswered], ["live", false]);
  others.remove();
  await close();
  await settled();
  assert.equal(copy.status, "ended");
  assert.deepEqual(object.observers, []);
  alice.close();
  assert.throws(() => (object.data.title = "nobody would hear of it"), /ended/);
});

test("changes are values: applying them needs nothing else", () => {
  const data = { list: [1, 2, 3] };
  applyChange(data, {
    attribute: "list.1",
    attributeType: "array",
    operation: "add",
    value: ["a", "b"],
  });
  applyChange(data, { attribute: "list.0", attributeType: "array", operation: "remove", value: 2 });
  assert.deepEqual(data, { list: ["b", 2, 3] });
  const told = [];
  const observed = observe(
    { list: [{ n: 1 }, { n: 2 }] },
    { admit: () => {}, changed: (change) => told.push(change) },
  );
  const second = observed.list[1];
  observed.list.shift();
  second.n = 3;
  assert.deepEqual(told.at(-1), { attribute: "list.0.n", value: 3 });
  assert.deepEqual(
    observed.list.map(({ n }) => n),
    [3],
  );
});

test("no data is deeper than others can read, however it became so", async () => {
  const object = await alice.syncher.create({ list: [] });
  let part = object.data;
  const deeper = () => ((part.a = {}), (part = part.a));
  assert.throws(() => Array.from({ length: 200 }, deeper), /100 layers/);
  part = object.data.list;
  const longer = () => (part.push([]), (part = part[0]));
  assert.throws(() => Array.from({ length: 200 }, longer), /100 layers/);
  const copy = await bob.syncher.subscribe(object.url);
  same(copy, object);
  const data = { a: {} };
  const nested = (layers) => JSON.parse("[".repeat(layers) + "]".repeat(layers));
  applyChange(data, { attribute: "a.b", value: nested(98) });
  for (const change of [
    { attribute: "a.b", value: nested(99) },
    { attribute: "a.b.0", attributeType: "array", operation: "add", value: nested(99) },
    { attribute: "b", value: nested(5_000) },
  ]) {
    assert.throws(() => applyChange(data, change), BadChange);
  }
  assert.deepEqual(data, { a: { b: nested(98) } });
});

test("names that mean something in JavaScript are names, or refused, and change nothing else", async () => {
  const object = await alice.syncher.create({
    constructor: { prototype: 1 },
    toString: "x",
    hasOwnProperty: 2,
  });
  const copy = await bob.syncher.subscribe(object.url);
  object.data.constructor.prototype = 2;
  object.data.valueOf = [1];
  object.data.valueOf.push(2);
  await object.addChild("c", "constructor");
  assert.throws(() => (object.data["__proto__"] = { bad: 1 }), TypeError);
  await settled();
  same(copy, object);
  assert.equal(copy.children[0].id, "constructor");
  const before = JSON.stringify(copy.data);
  for (const attribute of [
    "__proto__",
    "__proto__.bad",
    "constructor.__proto__.bad",
    "list.constructor.bad",
  ]) {
    assert.throws(() => applyChange(JSON.parse(before), { attribute, value: 1 }), BadChange);
  }
  assert.throws(
    () => applyChange({}, { attribute: "a", value: JSON.parse('{"__proto__": {"bad": 1}}') }),
    BadChange,
  );
  assert.equal({}.bad, undefined);
});

test("a runtime that closes complains of no answer that it does not wait for", async () => {
  await alice.syncher.create({ n: 0 });
  node.copies = () => 0;
  alice.closeParts();
  await settled();
  alice.bus.close();
  await settled();
  assert.deepEqual(alice.errors, []);
});

test("who answers in parts cannot fill the memory of who reads", async () => {
  const url = "comm://d/huge";
  node.subscribers.set(url, new Set([alice]));
  alice.bus.addListener(url, (message) => {
    const say = (value) => alice.bus.postMessage(answerTo(message, { code: 100, value }));
    say({ data: {}, responses: 1_000 });
    for (let n = 0; n < 40; n += 1)
      say({ childrenObjects: { [`c${n}`]: { source: "s", value: "x".repeat(500_000) } } });
  });
  await rejects(requestInParts(bob.bus, { type: "read", from: bob.hyperty, to: url }), 413);
});

test("an object whose value is none is read again ever later", async () => {
  const parts = {
    apply: () => {},
    adopt: ({ isGood }) => assert.ok(isGood),
    failed: () => {},
    count: () => {},
  };
  let reads = 0;
  const read = async () => ({ version: (reads += 1) });
  const follower = new Follower({ ...parts, read }, node.clock);
  follower.start({ version: 0, isGood: true });
  follower.check();
  for (let seconds = 0; seconds < 60; seconds += 1) {
    await settled();
    await node.clock.turn(1_000);
  }
  assert.ok(reads >= 5 && reads <= 7, String(reads));
  follower.stop();
});

test("who may read is decided at leisure; who throws refuses", async () => {
  const object = await alice.syncher.create({ n: 0 });
  for (let n = 0; n < 30; n += 1) await object.addChild("x".repeat(50_000));
  const carol = node.peer();
  const read = () =>
    requestInParts(carol.bus, { type: "read", from: carol.hyperty, to: object.url });
  let decide;
  object.onRead(() => new Promise((resolve) => (decide = resolve)));
  const reading = read();
  for (let n = 0; n < 3; n += 1) await node.turn(10_000); // longer than anybody waits for no answer
  decide(true);
  assert.equal(Object.keys((await reading).value.childrenObjects).length, 30);
  object.onRead(() => {
    throw Object.assign(new Error("knows no object"), { code: 404 });
  });
  await rejects(read(), 404);
});

test("a child is for reading, as deep as it is", async () => {
  const object = await alice.syncher.create({ n: 0 });
  const copy = await bob.syncher.subscribe(object.url);
  const heard = [];
  copy.onChild((event) => heard.push(event));
  const id = await object.addChild({ text: "one", by: ["Ann"] });
  await settled();
  for (const { value } of [object.children[0], copy.children[0], heard[0]]) {
    assert.throws(() => (value.text = "two"), TypeError);
    assert.throws(() => value.by.push("Ben"), TypeError);
  }
  await object.updateChild(id, { ...object.children[0].value, text: "two" });
  await settled();
  assert.deepEqual(copy.children[0].value, { text: "two", by: ["Ann"] });
});
