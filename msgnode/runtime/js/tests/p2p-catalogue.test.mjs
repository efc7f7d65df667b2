/** Runtimes whose direct connections are those of the catalogue's P2P stubs, with one another and with ours. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { MessageBus } from "../src/messagebus.js";
import { HandedStub, MAX_HANDED } from "../src/p2p/catalogue-stubs.js";
import { DESCRIPTOR, Net, newCatalogueStubs } from "./p2p-runtimes.mjs";

const DIRECT = /\/p2p(requester|handler)\//;
const CATALOGUE = "http://127.0.0.1/.well-known/protocolstub/";
const TIMERS = { forget: 60_000 };
let net;
let asked; // what the catalogue was asked for
let isEmpty; // the catalogue has nothing
let delay; // which it answers after
let opened; // {sandboxes, instances, urls} of each runtime
let killed; // instances that nobody can end but the test

beforeEach(() => {
  net = new Net();
  [asked, opened, killed, isEmpty, delay] = [[], [], [], false, null];
});
afterEach(async () => {
  for (const each of [...killed]) {
    const ending = each.disconnect();
    await net.turn(5_000);
    await ending;
  }
  await net.end();
});

/** The catalogue's stubs, in a sandbox of the test's. */
function fromCatalogue(resolver, options, platform) {
  const document = async (url) => {
    asked.push(url.slice(CATALOGUE.length));
    await delay;
    return isEmpty ? undefined : DESCRIPTOR;
  };
  return newCatalogueStubs(
    resolver,
    { ...options, timers: { ...TIMERS, ...options.timers } },
    platform,
    { clock: net.clock, document, opened },
  );
}

/** Two runtimes; the second one has what `others` say. */
async function two(others = { newP2P: fromCatalogue }, own = {}) {
  const pair = [net.talker({ newP2P: fromCatalogue, ...own }), net.talker(others)];
  for (const { p2p } of pair) p2p.start();
  await net.turn();
  return pair;
}

async function together(one, other) {
  assert.equal((await net.asked(one.want(other))).value.n, -1);
  await net.turn();
  assert.match((await net.asked(one.ask(other, 0))).cameBy, DIRECT);
}

const stateOf = (one, other) =>
  one.p2p.connections.find(({ runtime }) => runtime === other.url)?.state;

test("P60 stubs of the catalogue come together: each loads what it needs, and the node hears no more", async () => {
  const [alice, bob] = await two();
  assert.deepEqual(asked, ["p2p-handler", "p2p-handler"]);
  await together(alice, bob);
  assert.deepEqual(asked.slice(2), ["p2p-requester"]);
  for (const each of [alice, bob])
    assert.deepEqual(each.states, ["created", "in-progress", "live"]);
  const before = net.seen.length;
  for (let n = 1; n <= 100; n += 1) {
    assert.match((await net.asked(alice.ask(bob, n))).cameBy, DIRECT);
    assert.match((await net.asked(bob.ask(alice, n))).cameBy, DIRECT);
  }
  assert.equal(net.seen.length, before);
  assert.deepEqual([...alice.errors, ...bob.errors], []);
  assert.ok(!net.frames.some((frame) => frame.includes('"peer"') || frame.includes('"via"')));
});

for (const role of ["requester", "handler"]) {
  test(`P60 a stub of the catalogue as ${role} comes together with a runtime that has P2P of its own`, async () => {
    const [alice, bob] = await two({});
    const [one, other] = role === "requester" ? [alice, bob] : [bob, alice];
    await together(one, other);
    assert.match((await net.asked(other.ask(one, 1))).cameBy, DIRECT);
    assert.deepEqual(alice.states, ["created", "in-progress", "live"]);
  });
}

test("P31 P32 with stubs of the catalogue each number arrives once and in order, though the channel ends in silence", async () => {
  const [alice, bob] = await two();
  await together(alice, bob);
  alice.got.length = bob.got.length = 0;
  let n = 0;
  const say = async (count) => {
    for (let i = 0; i < count; i += 1, n += 1) {
      alice.tell(bob, n);
      bob.tell(alice, n);
      if (n % 10 === 0) await net.turn(10);
    }
  };
  await say(200);
  net.cut();
  await say(200);
  await net.turn(13_000);
  await say(200);
  await net.turn(10_000);
  const all = Array.from({ length: n }, (_, index) => index);
  assert.deepEqual([alice.got, bob.got], [all, all]);
  assert.ok(alice.states.includes("disconnected"));
});

test("P26 both dial at once with stubs of the catalogue, and each message arrives once and in order", async () => {
  const [alice, bob] = await two();
  for (const [one, other] of [
    [alice, bob],
    [bob, alice],
  ])
    one.want(other);
  for (let n = 0; n < 100; n += 1) {
    alice.tell(bob, n);
    bob.tell(alice, n);
    if (n % 5 === 0) await net.turn(1);
  }
  await net.turn(5_000);
  const all = Array.from({ length: 100 }, (_, index) => index);
  for (const each of [alice, bob]) {
    assert.deepEqual(
      each.got.filter((n) => n >= 0),
      all,
    );
    assert.ok(each.states.includes("live") && !each.states.includes("failed"), String(each.states));
  }
  for (const [one, other] of [
    [alice, bob],
    [bob, alice],
  ])
    assert.match((await net.asked(one.ask(other, 1))).cameBy, DIRECT);
});

test("P25 who is being dialled loads no requester, and P57 a runtime that closes says bye", async () => {
  const [alice, bob] = await two();
  await together(alice, bob);
  asked.length = 0;
  await together(bob, alice);
  assert.deepEqual(asked, []);
  const closing = bob.p2p.close();
  await net.turn(5_000);
  await closing;
  assert.deepEqual(alice.states.slice(0, 4), ["created", "in-progress", "live", "disconnected"]);
  assert.match((await net.asked(bob.ask(alice, 1))).cameBy, /protostub/);
});

test("P20 a catalogue without the stubs leaves everything with the node, and is asked again ever later", async () => {
  const [alice, bob] = await two({});
  isEmpty = true;
  asked.length = 0;
  for (const wait of [0, 29_000, 2_000, 59_000, 2_000]) {
    await net.turn(wait);
    assert.match((await net.asked(alice.want(bob))).cameBy, /protostub/);
  }
  assert.equal(asked.length, 3);
  assert.deepEqual(alice.states, ["failed", "failed", "failed"]);
  assert.match(alice.reasons[0], /nothing at/);
});

test("P1 a handler that could not be loaded is looked for again", async () => {
  isEmpty = true;
  const [alice] = await two({});
  assert.deepEqual(
    alice.errors.splice(0).map(({ reason }) => reason),
    ["p2p.not-announced"],
  );
  await net.turn(3_000);
  assert.equal(asked.length, 3);
  isEmpty = false;
  await net.turn(10_000);
  assert.equal(asked.length, 4);
  assert.ok(net.claimed.has(alice.p2p.handler));
});

test("a handler whose sandbox dies is started again, and who waited for an answer is told", async () => {
  const [alice, bob] = await two();
  const carol = net.talker();
  carol.p2p.start();
  await net.turn();
  await together(alice, bob);
  bob.bus.removeAllListenersOf(bob.app);
  bob.bus.addListener(bob.app, () => {});
  const answer = alice.ask(bob, 1).then(
    () => "answered",
    (error) => error.code,
  );
  await net.turn();
  asked.length = 0;
  net.cut();
  killed.push(...opened[0].instances);
  (await opened[0].sandboxes.openForPeers("d")).kill("It was ended.");
  assert.equal(await net.asked(answer), 503);
  assert.equal(stateOf(alice, bob), undefined);
  assert.equal(alice.states.at(-1), "disconnected");
  assert.match((await net.asked(alice.ask(carol, 1))).cameBy, /protostub/);
  await net.turn(1_000);
  assert.deepEqual(asked, ["p2p-handler"]);
  await together(carol, alice);
});

test("a requester that is not used is unloaded, and loaded again when it is wanted", async () => {
  const [alice, bob] = await two(
    { newP2P: fromCatalogue, timers: { idle: 5_000 } },
    { timers: { idle: 5_000 } },
  );
  await together(alice, bob);
  await net.turn(6_000);
  assert.equal(stateOf(alice, bob), "disconnected");
  await net.turn(90_000);
  assert.equal(stateOf(alice, bob), undefined);
  asked.length = 0;
  await together(alice, bob);
  assert.deepEqual(asked, ["p2p-requester"]);
});

test("P48 a stub may say what is its own and hand back what it was handed, and speaks for nobody else here", async () => {
  const bus = new MessageBus("runtime://d/9");
  const posted = [];
  const sandbox = { post: (url, message) => posted.push(message) };
  const url = "runtime://d/p2prequester/1";
  const stub = new HandedStub(bus, { url, handlerURL: "runtime://d/9/p2phandler/1", sandbox });
  const [claim, handed] = [
    {
      id: 1,
      type: "subscribe",
      from: url,
      to: "domain://msg-node.d/sm",
      body: { resources: ["connection://d/1", "hyperty://d/1", "runtime://d/9/app"] },
    },
    { id: 2, type: "create", from: "runtime://d/9/app", to: "runtime://d/1/app" },
  ];
  assert.ok(!stub.mayPost({ ...claim, from: "connection://d/1" }), "not before it is claimed");
  assert.ok(stub.isOwn(claim));
  assert.ok(stub.mayPost({ ...claim, from: "connection://d/1" }));
  for (const from of [
    "hyperty://d/1",
    "runtime://d/9/app",
    "runtime://d/9/sm",
    "runtime://d/9/p2phandler/2",
  ])
    assert.ok(!stub.mayPost({ ...claim, from }), from);
  assert.ok(!stub.mayPost(handed));
  assert.equal(stub.takes(handed), url);
  assert.ok(
    stub.mayPost(handed) &&
      !stub.mayPost({ ...handed, to: "runtime://d/2/app" }) &&
      !stub.mayPost({ ...handed, id: 3 }),
  );
  assert.ok(stub.handedBack(handed) && !stub.handedBack(handed), "once");
  bus.postMessage({ type: "update", from: "runtime://d/1/app", to: "connection://d/1" });
  await net.turn();
  assert.equal(posted.length, 1);
  assert.ok(
    stub.isOwn({ ...claim, type: "unsubscribe" }) &&
      !stub.mayPost({ ...claim, from: "connection://d/1" }),
  );
  stub.takes(handed);
  const other = new HandedStub(bus, {
    url: "runtime://d/p2prequester/2",
    handlerURL: "runtime://d/9/p2phandler/2",
    sandbox,
  });
  assert.ok(!other.mayPost(handed), "another stub was not handed it");
  for (let id = 3; id < MAX_HANDED + 2; id += 1) stub.takes({ ...handed, id });
  assert.ok(stub.mayPost(handed), "as many as there may be");
  stub.takes({ ...handed, id: MAX_HANDED + 2 });
  assert.ok(!stub.mayPost(handed) && stub.mayPost({ ...handed, id: 3 }), "the oldest is forgotten");
  for (const each of [stub, other]) each.remove();
});

test("P45 bytes that a stub hands back, or that a stub which ended was to answer, are refused: the node cannot carry them", async () => {
  const limits = { timers: { idle: 5_000, linger: 0, peers: 1 } };
  const [alice, bob] = await two({}, limits);
  const carol = net.talker();
  carol.p2p.start();
  await net.turn();
  await together(bob, alice);
  await net.turn(6_000);
  await net.asked(carol.want(alice)); // the handler forgets bob for her
  const value = { n: 1, content: new Uint8Array([1, 2, 3]) };
  const asked = alice.bus
    .request({ type: "create", from: alice.app, to: bob.app, body: { value } })
    .then(
      () => 200,
      ({ code }) => code,
    );
  assert.equal(await net.asked(asked), 503);
  assert.ok(!bob.got.includes(1));

  let question;
  alice.bus.removeAllListenersOf(alice.app);
  alice.bus.addListener(alice.app, (message) => (question = message));
  carol.ask(alice, 2).catch(() => {});
  await net.turn();
  assert.match(question.body.via, DIRECT);
  killed.push(...opened[0].instances);
  (await opened[0].sandboxes.openForPeers("d")).kill("It was ended.");
  net.seen.length = 0;
  alice.bus.postMessage({
    id: question.id,
    type: "response",
    from: alice.app,
    to: carol.app,
    body: { code: 200, value },
  });
  await net.turn();
  assert.deepEqual(
    net.seen.filter(({ type }) => type === "response").map(({ body }) => [body.code, body.value]),
    [[503, undefined]],
  );
});

test("a requester is unloaded if what it was loaded for was forgotten meanwhile, with the sandbox that died", async () => {
  const [alice, bob] = await two({});
  await together(bob, alice);
  const closing = bob.p2p.close();
  await net.turn(15_000);
  await closing;
  let go;
  delay = new Promise((resolve) => (go = resolve));
  await net.asked(alice.want(bob));
  assert.equal(asked.at(-1), "p2p-requester");
  killed.push(...opened[0].instances);
  (await opened[0].sandboxes.openForPeers("d")).kill("It was ended.");
  go();
  await net.turn(5_000);
  const [requester] = opened[0].urls.filter((url) => url.includes("/p2prequester/"));
  assert.ok(requester && !alice.bus.isHeard(requester));
});

test("P25 who dials us some time after our own set-up failed is answered on his channel, and our requester is unloaded", async () => {
  const [alice, bob] = await two({});
  net.isBlocked = true;
  await net.asked(alice.want(bob));
  await net.turn(16_000);
  assert.equal(stateOf(alice, bob), "failed");
  net.isBlocked = false;
  await net.turn(11_000);
  asked.length = alice.got.length = bob.got.length = 0;
  bob.want(alice);
  for (let n = 0; n < 100; n += 1) {
    alice.tell(bob, n);
    bob.tell(alice, n);
    if (n % 5 === 0) await net.turn(1);
  }
  await net.turn(5_000);
  assert.equal(stateOf(alice, bob), "live");
  for (let n = 100; n < 103; n += 1)
    assert.match((await net.asked(alice.want(bob, n))).cameBy, DIRECT);
  assert.deepEqual(asked, []);
  assert.deepEqual(
    bob.got,
    Array.from({ length: 103 }, (_, index) => index),
  );
  const [requester] = opened[0].urls.filter((url) => url.includes("/p2prequester/"));
  assert.ok(!alice.bus.isHeard(requester));
});
