/** Data objects: reporter, observers, and what a node, a reporter or an observer can do wrong. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { applyChange } from "../src/syncher/changes.js";
import { observe } from "../src/syncher/observed.js";
import { settled } from "./fake-clock.mjs";
import { FakeNode, newStorage } from "./peers.mjs";

const SM = "domain://msg-node.d/sm";

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
const numbered = (object, version, more = {}) => ({
  type: "update",
  from: object.url,
  to: `${object.url}/changes`,
  id: 1000 + version,
  body: { version, attribute: "title", value: `t${version}`, ...more },
});
const toBob = (message) => bob.bus.postFrom(bob.stub, message);
const rejects = (promise, code) => assert.rejects(promise, (error) => error.code === code);

// --- creating and subscribing -----------------------------------------------------------------------

test("R58 a created object has an address of its schema's scheme, claimed at the node for its reporter", async () => {
  for (const [schema, scheme] of [
    ["https://c/dataschema/Communication", "comm"],
    ["Connection", "connection"],
    ["Context", "context"],
    ["WalletData", "walletData"],
    ["HelloWorld", "hello"],
    ["", "resource"],
  ]) {
    node.seen.length = 0;
    const { url } = await alice.syncher.create({}, { schema });
    assert.match(url, new RegExp(`^${scheme}://d/.`));
    const claims = node
      .sent("subscribe", SM)
      .map(({ from, body }) => [from, body.resources, body.source]);
    const source = alice.hyperty;
    assert.deepEqual(claims.slice(-2), [
      [`${alice.url}/sm`, [url, `${url}/subscription`], source],
      [`${alice.url}/sm`, [`${url}/children/`], source],
    ]);
    const [{ body }] = node.sent("create", "domain://registry.d");
    assert.deepEqual(
      [body.value.url, body.value.reporter, body.value.runtime],
      [url, alice.hyperty, alice.url],
    );
  }
});

test("R59 without routing and registration neither node nor registry hears of an object", async () => {
  const object = await alice.syncher.create(
    { n: 1 },
    { domain_routing: false, domain_registration: false },
  );
  const other = alice.newSyncher("hyperty://d/other");
  node.seen.length = 0;
  const copy = await other.subscribe(object.url);
  object.data.n = 2;
  await settled();
  assert.equal(copy.data.n, 2);
  assert.deepEqual(
    node.seen.filter(
      ({ to, body }) => to !== SM || body.resources.some((each) => each.startsWith(object.url)),
    ),
    [],
  );
  const unregistered = await alice.syncher.create({}, { domain_registration: false });
  assert.ok(unregistered.url && node.sent("create", "domain://registry.d").length === 0);
});

test("R60 an update between the subscription and its answer is applied once if it is newer, else dropped", async () => {
  const object = await alice.syncher.create({ title: "a" });
  object.data.title = "b";
  let late = null;
  object.onSubscription(() => new Promise((resolve) => (late = resolve)));
  const subscribing = bob.syncher.subscribe(object.url);
  await settled();
  object.data.title = "c"; // 2: before the value is made
  late(true);
  await Promise.resolve();
  await Promise.resolve();
  object.data.title = "d"; // 3
  const copy = await subscribing;
  const seen = [];
  copy.onChange(({ value }) => seen.push(value));
  await settled();
  assert.deepEqual([copy.data.title, copy.version], ["d", 3]);
  toBob(numbered(object, 2));
  await settled();
  assert.equal(copy.data.title, "d");
});

test("R61 what is missing is read after 2 s; what only changed places is applied in order", async () => {
  const { object, copy, changes } = await shared({ title: "0", list: [] });
  const held = [];
  node.copies = (message) => (message.to === `${object.url}/changes` ? (held.push(message), 0) : 1);
  for (const n of [1, 2, 3, 4]) object.data.title = String(n);
  await settled();
  node.copies = () => 1;
  for (const index of [0, 2, 1]) toBob(held[index]);
  await settled();
  assert.deepEqual(
    changes.map(({ value }) => value),
    ["1", "2", "3"],
  );
  assert.equal(node.sent("read", object.url).length, 0);
  object.data.list.push(1); // 5, while 4 is missing
  await node.turn(1_900);
  assert.equal(copy.version, 3);
  await node.turn(200);
  assert.equal(node.sent("read", object.url).length, 1);
  same(copy, object);
  assert.equal(copy.version, 5);
  assert.equal(changes.at(-1).attribute, "");
});

test("R62 who is refused is told 403, also later, and hears nothing", async () => {
  const object = await alice.syncher.create({ n: 0 });
  object.onSubscription(({ hyperty }) => hyperty !== bob.hyperty);
  await rejects(bob.syncher.subscribe(object.url), 403);
  object.onSubscription(async () => false);
  await rejects(bob.syncher.subscribe(object.url), 403);
  await settled();
  assert.equal(node.subscribers.get(`${object.url}/changes`).size, 0);
  assert.deepEqual(object.observers, []);
  await rejects(bob.syncher.subscribe("comm://d/nothing"), 404);
});

test("R63 who leaves is off the node's list and the reporter's, and hears no more", async () => {
  const { object, copy, changes } = await shared();
  assert.deepEqual(object.observers, [bob.hyperty]);
  await copy.unsubscribe();
  object.data.title = "x";
  await settled();
  assert.deepEqual(node.sent("unsubscribe", SM)[0].body.resources, [
    `${object.url}/changes`,
    `${object.url}/children/`,
  ]);
  assert.deepEqual([changes, object.observers, copy.status], [[], [], "ended"]);
  assert.notEqual(await bob.syncher.subscribe(object.url), copy);
});

test("unsubscribing amid changes leaves no listener and no fault", async () => {
  const { object, copy } = await shared();
  for (let n = 0; n < 50; n += 1) object.data.title = String(n);
  const left = copy.unsubscribe();
  for (let n = 50; n < 100; n += 1) object.data.title = String(n);
  await left;
  await settled();
  assert.deepEqual([bob.errors, alice.errors], [[], []]);
  assert.equal(bob.bus.listenersOf(`${object.url}/changes`).length, 0);
});

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

test("R65 a large object is read in parts; a part that is missing ends the wait with 408", async () => {
  const object = await alice.syncher.create({ title: "big" });
  for (let n = 0; n < 20; n += 1) await object.addChild({ n, text: "x".repeat(10_000) });
  const copy = await bob.syncher.subscribe(object.url);
  assert.deepEqual(copy.children, object.children);
  const parts = node.seen.filter(
    ({ type, from, to }) => type === "response" && from === object.url && to === bob.hyperty,
  );
  assert.ok(parts.length > 3);
  assert.equal(parts[0].body.code, 100);
  assert.equal(parts[0].body.value.responses, parts.length);
  let dropped = 0;
  node.copies = ({ type, from, body }) =>
    type === "response" &&
    from === object.url &&
    body.code === 100 &&
    !body.value.responses &&
    dropped++ === 0
      ? 0
      : 1;
  const carol = node.peer();
  await rejects(carol.syncher.subscribe(object.url), 502); // the last part says that one is missing
  node.copies = ({ type, from, body }) =>
    type === "response" && from === object.url && !body.value.responses ? 0 : 1;
  const reading = carol.syncher.subscribe(object.url);
  const refused = rejects(reading, 408);
  for (let n = 0; n < 4; n += 1) await node.turn(5_000);
  await refused;
});

// --- invitations ------------------------------------------------------------------------------------

test("who is invited hears of it and may say no, later too; who says yes is admitted without a question", async () => {
  const object = await alice.syncher.create({ n: 1 }, { name: "room" });
  object.onSubscription(() => false);
  assert.deepEqual([...(await object.invite(bob.hyperty))], [[bob.hyperty, 404]]); // he takes none
  await bob.syncher.onInvitation(() => false);
  assert.equal((await object.invite([bob.hyperty])).get(bob.hyperty), 403);
  const heard = [];
  bob.syncher.onInvitation(async (invitation) => void heard.push(invitation));
  assert.equal((await object.invite([bob.hyperty])).get(bob.hyperty), 200);
  assert.deepEqual(
    [heard[0].url, heard[0].name, heard[0].from],
    [object.url, "room", alice.hyperty],
  );
  const copy = await bob.syncher.subscribe(heard[0].url);
  assert.equal(copy.data.n, 1);
});

test("a person may think for a while: who waits is told 100 every 10 s, and 408 after 100 s", async () => {
  const object = await alice.syncher.create({ n: 1 });
  await bob.syncher.onInvitation(() => new Promise(() => {}));
  const inviting = object.invite([bob.hyperty]);
  for (let n = 0; n < 21; n += 1) await node.turn(5_000);
  assert.deepEqual([...(await inviting)], [[bob.hyperty, 408]]);
  let decide;
  object.onSubscription(() => new Promise((resolve) => (decide = resolve)));
  const subscribing = bob.syncher.subscribe(object.url);
  for (let n = 0; n < 10; n += 1) await node.turn(5_000);
  decide(true);
  assert.equal((await subscribing).data.n, 1);
});

test("an invited hyperty that never answers is 408, and holds up nobody", async () => {
  const object = await alice.syncher.create({});
  node.subscribers.set("hyperty://d/mute", new Set([bob]));
  bob.bus.addListener("hyperty://d/mute", () => {});
  const inviting = object.invite(["hyperty://d/mute"]);
  const copy = await bob.syncher.subscribe(object.url);
  assert.ok(copy);
  for (let n = 0; n < 4; n += 1) await node.turn(5_000);
  assert.equal((await inviting).get("hyperty://d/mute"), 408);
});

// --- children ---------------------------------------------------------------------------------------

test("children of observers and reporter are the same everywhere, each told once", async () => {
  const { object, copy } = await shared();
  const carol = await node.peer().syncher.subscribe(object.url);
  const told = { alice: [], bob: [], carol: [] };
  object.onChild((event) => told.alice.push(event));
  copy.onChild((event) => told.bob.push(event));
  carol.onChild((event) => told.carol.push(event));
  const one = await copy.addChild({ text: "hello" });
  await object.addChild({ text: "welcome" });
  await copy.updateChild(one, { text: "hello!" });
  await object.removeChild(one);
  await settled();
  assert.deepEqual(
    told.alice.map(({ type, value }) => [type, value.text]),
    [
      ["create", "hello"],
      ["create", "welcome"],
      ["update", "hello!"],
      ["delete", "hello!"],
    ],
  );
  assert.deepEqual(told.bob, told.alice);
  assert.deepEqual(told.carol, told.alice);
  assert.deepEqual(
    copy.children.map(({ value, source }) => [value.text, source]),
    [["welcome", alice.hyperty]],
  );
});

test("a child is its maker's, and nobody adds one who does not observe", async () => {
  const { object, copy } = await shared();
  const carol = node.peer();
  const others = await carol.syncher.subscribe(object.url);
  const id = await copy.addChild({ text: "mine" });
  await rejects(others.updateChild(id, { text: "yours" }), 403);
  await rejects(others.removeChild(id), 403);
  await rejects(copy.updateChild("no such", {}), 404);
  const stranger = node.peer();
  const reply = (message) => stranger.bus.request({ from: stranger.hyperty, ...message });
  await rejects(
    reply({ type: "create", to: `${object.url}/children/`, body: { resource: "spam", value: {} } }),
    403,
  );
  await rejects(reply({ type: "read", to: object.url }), 403);
  await settled();
  assert.deepEqual([copy.children, others.children], [object.children, object.children]);
  await rejects(copy.addChild({}, "__proto__"), 400);
  await rejects(copy.addChild({ text: "x".repeat(700_000) }), 413);
});

test("a child that is sent again because its answer was lost is there once", async () => {
  const { object, copy } = await shared();
  let lost = 0;
  node.copies = ({ type, from }) =>
    type === "response" && from === `${object.url}/children/` && lost++ === 0 ? 0 : 1;
  const adding = copy.addChild({ text: "once" });
  for (let n = 0; n < 4; n += 1) await node.turn(5_000);
  await adding;
  await settled();
  assert.deepEqual([copy.children.length, object.children.length, lost], [1, 1, 2]);
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

// --- lies -------------------------------------------------------------------------------------------

test("what another sends as the object is not believed", async () => {
  const { object, copy } = await shared();
  toBob({ ...numbered(object, 1), from: "hyperty://d/eve" });
  toBob({ ...numbered(object, 1), from: `${object.url}0` });
  bob.bus.postFrom("runtime://evil/protostub/1", numbered(object, 1));
  await settled();
  assert.deepEqual([copy.data.title, bob.bus.counters["data.forged"]], ["Picnic", 3]);
  toBob({ ...numbered(object, 1), type: "delete", from: "hyperty://d/eve" });
  await settled();
  assert.equal(copy.status, "live");
});

test("versions backwards, wrong and huge are dropped or read once a second, never believed", async () => {
  const { object, copy } = await shared();
  for (let n = 0; n < 5; n += 1) object.data.title = `v${n}`;
  await settled();
  for (const version of [0, 3, 5, -1, 1.5, "6", null, NaN, Infinity])
    toBob(numbered(object, version));
  await settled();
  assert.deepEqual([copy.data.title, copy.version], ["v4", 5]);
  for (let n = 0; n < 500; n += 1) toBob(numbered(object, Number.MAX_SAFE_INTEGER - n));
  await node.turn(10_000);
  assert.ok(node.sent("read", object.url).length <= 4, "not a read for each lie");
  same(copy, object);
});

test("a change that does not fit is no change: the object is read", async () => {
  const { object, copy } = await shared();
  const wrong = [
    { attribute: "no.such.path" },
    { attribute: "guests.9" },
    { attribute: "__proto__.x", value: 1 },
    { attribute: "guests.0", attributeType: "array", operation: "remove", value: 1e9 },
    { attribute: 7 },
    {},
  ];
  for (const change of wrong) {
    toBob(
      numbered(object, copy.version + 1, { attribute: undefined, value: undefined, ...change }),
    );
    await node.turn(2_500);
    same(copy, object);
    assert.equal(copy.version, object.version);
  }
  assert.equal({}.x, undefined);
});

test("a reporter cannot fill an observer's memory", async () => {
  const { object, copy } = await shared();
  for (let n = 1; n <= 20; n += 1)
    toBob(numbered(object, n, { attribute: `k${n}`, value: "x".repeat(200_000) }));
  await node.turn(5_000);
  assert.ok(JSON.stringify(copy.data).length < 1_300_000);
  same(copy, object);
});

test("a remote runtime cannot have this one create, observe or delete", async () => {
  const { object } = await shared();
  const codes = [];
  for (const [type, body] of [
    ["create", { value: { data: {} } }],
    ["subscribe", { resource: object.url }],
    ["delete", { resource: object.url }],
  ]) {
    bob.bus.postMessage({ type, from: bob.hyperty, to: `${alice.url}/sm`, body }, (reply) =>
      codes.push(reply.body.code),
    );
    await settled();
  }
  assert.deepEqual(codes, [403, 403, 403]);
  const eve = alice.newSyncher("hyperty://d/eve"); // of the same runtime
  const told = await alice.bus
    .request({
      type: "delete",
      from: "hyperty://d/eve",
      to: `${alice.url}/sm`,
      body: { resource: object.url },
    })
    .catch((error) => error.code);
  assert.ok(eve && told === 404);
  await rejects(eve.create({}, { url: object.url }), 403);
  await rejects(alice.syncher.create({}, { url: object.url }), 409);
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

// --- losses -----------------------------------------------------------------------------------------

test("R52 after a gap, and after a connection came back, the object is read", async () => {
  const { object, copy } = await shared();
  const title = `${object.url}/changes`;
  node.copies = ({ to }) => (to === title ? 0 : 1);
  object.data.title = "lost, and nothing after it";
  await settled();
  node.copies = () => 1;
  bob.say("gap");
  await node.turn(1_000);
  same(copy, object);
  bob.say("disconnected");
  await settled();
  assert.equal(copy.status, "disconnected");
  node.copies = ({ to }) => (to === title ? 0 : 1);
  object.data.title = "while he was away";
  await settled();
  node.copies = () => 1;
  bob.say("live");
  await node.turn(2_000);
  assert.equal(copy.status, "live");
  same(copy, object);
});

test("what the node has ended is subscribed again at a gap, or said not to be", async () => {
  const { object, copy } = await shared();
  const changes = `${object.url}/changes`;
  const forget = () => node.subscribers.get(changes).delete(bob); // a policy does not allow it any more
  assert.ok(forget());
  object.data.title = "heard by nobody";
  bob.say("gap");
  await node.turn(1_000);
  same(copy, object);
  assert.ok(node.subscribers.get(changes).has(bob));
  assert.deepEqual(bob.errors, []);
});

test("a reporter whose connection broke repeats the last change, which is applied once", async () => {
  const { object, copy, changes } = await shared();
  node.copies = ({ to }) => (to === `${object.url}/changes` ? 0 : 1);
  object.data.title = "lost on the way out";
  await settled();
  node.copies = () => 1;
  alice.say("disconnected");
  alice.say("live");
  await settled();
  alice.say("disconnected");
  alice.say("live");
  await node.turn(3_000);
  assert.equal(changes.length, 1);
  assert.equal(node.sent("read", object.url).length, 0);
  same(copy, object);
});

test("a reporter that is away leaves the copy; it is read again until he is back", async () => {
  const { object, copy } = await shared();
  node.copies = ({ to, from }) => (to === object.url || from === object.url ? 0 : 1);
  bob.say("gap");
  for (let n = 0; n < 4; n += 1) await node.turn(5_000);
  assert.deepEqual([copy.status, copy.data.title], ["disconnected", "Picnic"]);
  object.data.title = "back";
  node.copies = () => 1;
  for (let n = 0; n < 20; n += 1) await node.turn(5_000);
  assert.equal(copy.status, "live");
  same(copy, object);
});

test("a reporter that was started anew goes on where its storage says, with its observers", async () => {
  const storage = newStorage();
  const carol = node.peer({ storage });
  const object = await carol.syncher.create({ n: 0 }, { name: "kept", store: true });
  const copy = await bob.syncher.subscribe(object.url);
  for (let n = 1; n <= 5; n += 1) object.data.n = n;
  const id = await copy.addChild({ text: "kept too" });
  await node.turn(300);
  carol.close();
  node.peers.splice(node.peers.indexOf(carol), 1);
  const again = node.peer({ storage });
  const [resumed] = await again.newSyncher(carol.hyperty).resume({ name: "kept" });
  assert.deepEqual([resumed.url, resumed.data.n, resumed.version], [object.url, 5, object.version]);
  assert.deepEqual(
    resumed.children.map((child) => child.id),
    [id],
  );
  node.subscribers.get(`${object.url}`).delete(carol);
  resumed.data.n = 6;
  await node.turn(3_000);
  assert.equal(copy.data.n, 6);
  await resumed.delete();
  assert.deepEqual(JSON.parse(storage.kept["msgnode.objects.d"]), []);
  await settled();
  assert.equal(copy.status, "ended");
});

test("a reporter that began anew, with versions from the start, is noticed at its first change", async () => {
  const { object, copy } = await shared({ n: 0 });
  for (let n = 1; n <= 30; n += 1) object.data.n = n;
  await settled();
  node.copies = () => 0; // she is killed, and says nothing any more
  alice.close();
  await settled();
  for (const all of node.subscribers.values()) all.delete(alice);
  const carol = node.peer();
  node.copies = () => 1;
  await node.turn(1_000);
  const anew = await carol.syncher.create({ n: "new" }, { url: object.url });
  await new Promise((resolve) => setTimeout(resolve, 5)); // the wall clock, that changes are dated by
  anew.data.more = 1;
  for (let n = 0; n < 4; n += 1) await node.turn(1_000);
  assert.deepEqual([copy.data.n, copy.data.more, copy.status], ["new", 1, "live"]);
  assert.deepEqual(anew.observers, [bob.hyperty]);
});

test("an observer that a new reporter refuses for now goes on hearing, and is admitted later", async () => {
  const { object, copy } = await shared({ n: 0 });
  object.onSubscription(() => false);
  await alice.bus.request({
    type: "forward",
    from: object.url,
    to: alice.hyperty,
    body: { type: "unsubscribe", from: bob.hyperty },
  });
  bob.say("gap");
  await node.turn(2_000);
  assert.equal(copy.status, "disconnected");
  assert.ok(node.subscribers.get(`${object.url}/changes`).has(bob));
  object.onSubscription(({ isAsserted }) => isAsserted === false);
  await node.turn(5_000);
  object.data.n = 1;
  await settled();
  assert.deepEqual([copy.status, copy.data.n], ["live", 1]);
});

test("an observer that was started anew in its runtime observes what it did", async () => {
  const { object } = await shared();
  const again = bob.newSyncher();
  const [copy] = await again.resumeObservers();
  object.data.title = "again";
  await settled();
  assert.equal(copy.data.title, "again");
  assert.deepEqual(await bob.newSyncher("hyperty://d/none").resumeObservers(), []);
  assert.deepEqual(await bob.newSyncher("hyperty://d/none").resume(), []);
});

test("an observer goes on after a crash with what its storage has, and says which object is gone", async () => {
  const storage = newStorage();
  const carol = node.peer({ storage });
  const objects = [];
  for (const n of [0, 1, 2]) {
    objects.push(await alice.syncher.create({ n }));
    await carol.syncher.subscribe(objects[n].url);
  }
  await (await carol.syncher.subscribe(objects[2].url)).unsubscribe();
  await node.turn(300);
  const crashed = newStorage({ ...storage.kept }); // what it wrote until then
  carol.close();
  node.peers.splice(node.peers.indexOf(carol), 1);
  for (const all of node.subscribers.values()) all.delete(carol);
  await objects[1].delete();
  const again = node.peer({ storage: crashed });
  const copies = await again.newSyncher(carol.hyperty).resumeObservers();
  assert.deepEqual(
    copies.map(({ url }) => url),
    [objects[0].url],
  );
  objects[0].data.n = 5;
  await settled();
  assert.equal(copies[0].data.n, 5);
  assert.deepEqual(
    again.errors.map(({ reason }) => reason),
    ["data.not-resumed"],
  );
});

test("a subscription is repeated when the line is back, and decided once; so is one that nobody answers", async () => {
  const object = await alice.syncher.create({ n: 1 });
  let asked = 0;
  let decide;
  object.onSubscription(() => {
    asked += 1;
    return new Promise((resolve) => (decide = resolve));
  });
  const isRequest = ({ type, to }) => type === "subscribe" && to === `${object.url}/subscription`;
  node.copies = (message) => (isRequest(message) ? 0 : 1); // lost on its way
  const first = bob.syncher.subscribe(object.url);
  await settled();
  node.copies = () => 1;
  for (const word of ["disconnected", "live", "disconnected", "live"]) bob.say(word);
  await settled();
  assert.equal(asked, 1);
  decide(true);
  assert.equal((await first).data.n, 1);
  const other = node.peer();
  node.copies = ({ type, to }) => (type === "response" && to === `${other.url}/sm` ? 0 : 1);
  const second = other.syncher.subscribe(object.url); // the node's answer is lost, without a word of the line
  await node.turn(1_000);
  node.copies = () => 1;
  await node.turn(15_000);
  await settled();
  decide(true);
  assert.equal((await second).data.n, 1);
});

test("what a node held for a stub that was started anew is subscribed again", async () => {
  const { object } = await shared();
  bob.say("live");
  alice.say("live");
  await settled();
  node.subscribers.clear();
  bob.say("created");
  alice.say("created");
  await settled();
  assert.deepEqual(
    [...node.subscribers.keys()].sort(),
    [
      alice.hyperty,
      bob.hyperty,
      object.url,
      `${object.url}/changes`,
      `${object.url}/children/`,
      `${object.url}/subscription`,
    ].sort(),
  );
});

test("the end of an object is told to its observers, and its address is free", async () => {
  const { object, copy } = await shared();
  const statuses = [];
  copy.onStatus((status) => statuses.push(status));
  await object.delete();
  await settled();
  assert.deepEqual(statuses, ["ended"]);
  assert.throws(() => (object.data.title = "too late"), TypeError);
  await rejects(copy.addChild({}), 404);
  assert.equal(node.subscribers.get(object.url).size, 0);
  await rejects(bob.syncher.subscribe(object.url), 404);
});

test("the end of a runtime that reported is told, unless it keeps the object for its return", async () => {
  const { copy } = await shared();
  const kept = await bob.syncher.subscribe((await alice.syncher.create({}, { store: true })).url);
  alice.manager.close();
  await settled();
  assert.deepEqual([copy.status, kept.status], ["ended", "live"]);
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

test("a scheme that is none is refused", () =>
  rejects(alice.syncher.create({}, { scheme: "a b" }), 400));

test("two hyperties of one runtime and their reporter share an object", async () => {
  const object = await alice.syncher.create({ n: 0 });
  const [one, two] = [alice.newSyncher("hyperty://d/one"), alice.newSyncher("hyperty://d/two")];
  const copies = await Promise.all([
    one.subscribe(object.url),
    two.subscribe(object.url),
    bob.syncher.subscribe(object.url),
  ]);
  object.data.n = 1;
  await copies[0].addChild({ text: "hi" });
  await settled();
  for (const copy of copies)
    assert.deepEqual([copy.data.n, copy.children.length, copy.version], [1, 1, 2]);
  assert.equal(await one.subscribe(object.url), copies[0]);
  await copies[0].unsubscribe();
  object.data.n = 2;
  await settled();
  assert.deepEqual(
    copies.map(({ data }) => data.n),
    [1, 2, 2],
  );
});

test("a listener of the application that throws stops nobody", async () => {
  const { object, copy, changes } = await shared();
  copy.onChange(() => {
    throw new Error("mine");
  });
  object.data.title = "a";
  object.data.title = "b";
  await settled();
  assert.equal(changes.length, 2);
  assert.ok(bob.errors.every(({ reason }) => reason === "listener.failed"));
  assert.equal(copy.data.title, "b");
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
