/** Data objects where their two sides meet: one hyperty on both, an address used again, depth, order, the end. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { BadChange, applyChange } from "../src/syncher/changes.js";
import { Follower } from "../src/syncher/follower.js";
import { requestInParts } from "../src/syncher/objects.js";
import { answerTo } from "../src/messages.js";
import { settled } from "./fake-clock.mjs";
import { FakeNode, newStorage } from "./peers.mjs";

let node, alice, bob;

beforeEach(() => {
  node = new FakeNode();
  [alice, bob] = [node.peer(), node.peer()];
});
afterEach(() => {
  for (const peer of node.peers) peer.close();
  assert.equal(node.clock.timers, 0, "closed runtimes leave no timer");
});

const rejects = (promise, code) => assert.rejects(promise, (error) => error.code === code);
const same = (copy, object) =>
  assert.deepEqual(JSON.parse(JSON.stringify(copy.data)), JSON.parse(JSON.stringify(object.data)));

test("a hyperty that observes its own object goes on reporting it when it observes no longer", async () => {
  const object = await alice.syncher.create({ n: 0 });
  const own = await alice.syncher.subscribe(object.url);
  object.data.n = 1;
  await object.addChild("mine");
  await settled();
  assert.deepEqual([own.data.n, own.children.length, own.version], [1, 1, 2]);
  await own.unsubscribe();
  const copy = await bob.syncher.subscribe(object.url);
  await copy.addChild("Bob's");
  object.data.n = 2;
  await settled();
  same(copy, object);
  assert.deepEqual(
    copy.children.map(({ value }) => value),
    ["mine", "Bob's"],
  );
  assert.equal(own.data.n, 1);
  const again = await alice.syncher.subscribe(object.url);
  await object.delete();
  await settled();
  assert.deepEqual([again.status, copy.status], ["ended", "ended"]);
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

test("who creates an object anew under its address is noticed, whatever his clock says", async () => {
  const object = await alice.syncher.create({ n: 0 });
  const copy = await bob.syncher.subscribe(object.url);
  for (let n = 1; n <= 30; n += 1) object.data.n = n;
  await settled();
  node.copies = () => 0; // she is killed
  alice.close();
  await settled();
  for (const all of node.subscribers.values()) all.delete(alice);
  const carol = node.peer();
  node.copies = () => 1;
  const anew = await carol.syncher.create({ n: "new" }, { url: object.url });
  node.copies = ({ body }) => {
    if (body?.lastModified) body.lastModified = "2001-01-01T00:00:00.000Z";
    return 1;
  };
  await node.turn(1_000);
  anew.data.more = 1;
  for (let n = 0; n < 4; n += 1) await node.turn(1_000);
  same(copy, anew);
  assert.equal(bob.bus.counters["data.anew"], 1);

  // Her changes that are late are not his, though their numbers would follow.
  bob.bus.postFrom(bob.stub, {
    type: "update",
    from: object.url,
    to: `${object.url}/changes`,
    id: 9,
    body: { version: 2, attribute: "n", value: "old", incarnation: "hers" },
  });
  anew.data.n = "newer";
  await node.turn(2_000);
  same(copy, anew);
});

test("what a reporter had not written before a crash is gone at its observers, too", async () => {
  const storage = newStorage();
  const carol = node.peer({ storage });
  const object = await carol.syncher.create({ n: 0 }, { store: true });
  const copy = await bob.syncher.subscribe(object.url);
  object.data.n = 1;
  await node.turn(300);
  const written = newStorage({ ...storage.kept });
  Object.assign(object.data, { n: 2, more: 7 });
  await settled();
  same(copy, object);
  node.copies = () => 0; // she is killed, and says nothing any more
  carol.close();
  await settled();
  node.copies = () => 1;
  for (const all of node.subscribers.values()) all.delete(carol);
  const [resumed] = await node.peer({ storage: written }).newSyncher(carol.hyperty).resume();
  assert.deepEqual({ ...resumed.data }, { n: 1 });
  await settled();
  same(copy, resumed);
  resumed.data.n = 3;
  await settled();
  same(copy, resumed);
  assert.equal(copy.version, resumed.version);
});

test("a guest who was sent away knows it, and observes again when he may", async () => {
  const object = await alice.syncher.create({ n: 0 });
  for (const id of ["0", "1", "2"]) await object.addChild("x".repeat(50_000), id);
  const copy = await bob.syncher.subscribe(object.url);
  node.received = (peer, message) => {
    if (peer === bob)
      peer.bus.postFrom(
        peer.stub,
        answerTo(message, { code: 403, desc: "The invitation has ended." }),
      );
    else FakeNode.prototype.received.call(node, peer, message);
  };
  for (const part of ["changes", "children/"])
    node.subscribers.get(`${object.url}/${part}`).delete(bob);
  bob.say("gap");
  await settled();
  assert.equal(copy.status, "disconnected");
  object.data.n = 1;
  await object.removeChild("1");
  await settled();
  assert.equal(copy.data.n, 0);
  delete node.received;
  await node.turn(1_000);
  assert.equal(await bob.syncher.subscribe(object.url), copy);
  await settled();
  assert.equal(copy.status, "live");
  same(copy, object);
  assert.deepEqual(
    copy.children.map(({ id }) => id),
    ["0", "2"],
  );
  object.data.n = 2;
  await settled();
  same(copy, object);
});

test("children keep their order over reads and restarts, though their ids are numbers", async () => {
  const storage = newStorage();
  const carol = node.peer({ storage });
  const object = await carol.syncher.create({}, { store: true });
  for (const id of ["b", "10", "9", "a", "1"]) await object.addChild("x".repeat(20_000), id); // in several parts
  await object.updateChild("10", "changed");
  await object.removeChild("9");
  await object.addChild("again", "9");
  const ids = ["b", "10", "a", "1", "9"];
  const copy = await bob.syncher.subscribe(object.url);
  assert.deepEqual(
    copy.children.map(({ id }) => id),
    ids,
  );
  await settled();
  await node.turn(300);
  carol.close();
  const back = node.peer({ storage });
  const [resumed] = await back.newSyncher(carol.hyperty).resume();
  assert.deepEqual(
    resumed.children.map(({ id }) => id),
    ids,
  );
});

test("an object that has ended can be changed no more, and says nothing", async () => {
  const object = await alice.syncher.create({ n: 0, list: [1, 2], part: { a: 1 } });
  await bob.syncher.subscribe(object.url);
  const { list, part } = object.data;
  await object.delete();
  node.seen.length = 0;
  for (const change of [
    () => (object.data.n = 1),
    () => delete object.data.n,
    () => list.pop(),
    () => list.reverse(),
    () => delete part.a,
  ]) {
    assert.throws(change, /has ended/);
  }
  await settled();
  assert.deepEqual(
    [node.seen, JSON.stringify(object.data)],
    [[], '{"n":0,"list":[1,2],"part":{"a":1}}'],
  );
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

test("a request about a child that is sent again is done once, whatever has happened since", async () => {
  const object = await alice.syncher.create({});
  const copy = await bob.syncher.subscribe(object.url);
  let lost = 0;
  node.copies = ({ type, to }) =>
    type === "response" && to === bob.hyperty && (lost += 1) === 1 ? 0 : 1;
  const adding = copy.addChild("hi", "c");
  await settled();
  await object.removeChild("c");
  await node.turn(16_000);
  assert.equal(await adding, "c");
  await settled();
  assert.deepEqual([lost, object.children, copy.children], [2, [], []]);
  await copy.addChild("again", "c"); // another request
  assert.equal(object.children.length, 1);
});

test("requests about a child are done in order, though the first is lost", async () => {
  const object = await alice.syncher.create({});
  const copy = await bob.syncher.subscribe(object.url);
  await copy.addChild("0", "c");
  let lost = 0;
  node.copies = ({ type, to }) =>
    type === "update" && to === `${object.url}/children/` && (lost += 1) === 1 ? 0 : 1;
  const both = [copy.updateChild("c", "1"), copy.updateChild("c", "2")];
  const other = copy.addChild("x", "other"); // does not wait for them
  await settled();
  await other;
  assert.equal(object.children[0].value, "0");
  await node.turn(16_000);
  await Promise.all(both);
  assert.equal(object.children[0].value, "2");
  await rejects(copy.updateChild("nothing", 1), 404);
  await copy.removeChild("c");
  assert.equal(object.children.length, 1);
});

test("who closes while he is being admitted observes nothing", async () => {
  const object = await alice.syncher.create({ n: 0 });
  let admit;
  object.onSubscription(() => new Promise((resolve) => (admit = resolve)));
  const other = bob.newSyncher("hyperty://d/other");
  const subscribing = rejects(other.subscribe(object.url), 503);
  await settled();
  await other.close();
  admit(true);
  await settled();
  await subscribing;
  assert.deepEqual([object.observers, node.subscribers.get(`${object.url}/changes`).size], [[], 0]);
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

test("who asks in an observer's name from another runtime is judged", async () => {
  const object = await alice.syncher.create({ n: 0 });
  const copy = await bob.syncher.subscribe(object.url);
  const asked = [];
  object.onSubscription((who) => (asked.push(who), false));
  const eve = node.peer();
  const body = { subscriber: bob.hyperty, source: bob.hyperty, identity: "Eve's" };
  await rejects(
    eve.bus.request({
      type: "subscribe",
      from: `${eve.url}/sm`,
      to: `${object.url}/subscription`,
      body,
    }),
    403,
  );
  assert.deepEqual(asked, [{ hyperty: bob.hyperty, identity: "Eve's", isAsserted: false }]);
  await rejects(eve.bus.request({ type: "read", from: `${eve.url}/sm`, to: object.url }), 403);
  bob.say("gap");
  object.data.n = 1;
  await node.turn(2_000);
  same(copy, object);
  assert.equal(copy.status, "live");
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

test("who is told no data object gets 502, and observes nothing", async () => {
  const object = await alice.syncher.create({ n: 1 });
  const many = Object.fromEntries(Array.from({ length: 10_001 }, (_, n) => [n, { value: n }]));
  const hand = node.hand.bind(node);
  for (const value of [
    "text",
    [1],
    { data: "text" },
    ...[{ a: null }, { "": { value: 1 } }, many].map((childrenObjects) => ({
      data: {},
      childrenObjects,
    })),
  ]) {
    node.hand = (peer, message) => {
      const isAnswer = message.type === "response" && message.from.endsWith("/subscription");
      hand(peer, isAnswer ? { ...message, body: { code: 200, value } } : message);
    };
    await rejects(bob.syncher.subscribe(object.url), 502);
    assert.equal(node.subscribers.get(`${object.url}/changes`).size, 0);
  }
  node.hand = hand;
  assert.equal((await bob.syncher.subscribe(object.url)).data.n, 1);
});
