/** P2P connections set up over a fake node and fake WebRTC; the numbers of cases are those of docs/reference/p2p.md. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Net } from "./p2p-runtimes.mjs";
import { settled } from "./fake-clock.mjs";

let net;

beforeEach(() => {
  net = new Net();
});
afterEach(() => net.end());

const connected = (options) => net.connected(options);
const asked = (answer) => net.asked(answer);

test("P15 the first message goes by node and the next by channel; the node hears no more", async () => {
  const [alice, bob] = await connected();
  assert.deepEqual(alice.states, ["created", "in-progress", "live"]);
  assert.deepEqual(bob.states, ["created", "in-progress", "live"]);
  assert.equal(bob.byChannel, 0);
  const before = net.seen.length;
  for (const [one, other] of [
    [alice, bob],
    [bob, alice],
  ]) {
    const { cameBy, value } = await asked(one.ask(other, 7));
    assert.equal(value.n, 7);
    assert.match(cameBy, /\/p2prequester\//);
  }
  assert.equal(net.seen.length, before);
  assert.deepEqual([...alice.errors, ...bob.errors], []);
});

test("P52 neither marks nor what names a runtime enters a channel", async () => {
  const [alice, bob] = await connected();
  net.frames.length = 0;
  await asked(alice.ask(bob, 1, { peer: bob.url, via: "x" }));
  assert.ok(net.frames.some((frame) => frame.includes('"textMessage"')));
  assert.ok(!net.frames.some((frame) => frame.includes('"peer"') || frame.includes('"via"')));
});

test("P16 P17 P3 a hyperty is looked up once, and its runtime dialled", async () => {
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  const url = "hyperty://d/echo";
  net.claimed.set(url, bob);
  net.registered[url] = { runtime: bob.url, ...bob.p2p.registration };
  bob.bus.addListener(url, (message) => bob.heard(message));
  await net.turn();
  const ask = (n) =>
    alice.bus.request({
      type: "create",
      from: alice.app,
      to: url,
      body: { value: { n }, p2p: true },
    });
  for (let n = 0; n < 10; n += 1) ask(n);
  await net.turn();
  assert.deepEqual(bob.got, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.equal(
    net.seen.filter(({ type, to }) => type === "create" && to === bob.p2p.handler).length,
    1,
  );
  assert.equal(
    net.seen.filter(({ type, to }) => type === "read" && to === "domain://registry.d").length,
    1,
  );
  assert.match((await asked(ask(10))).cameBy, /\/p2prequester\//);
});

test("P2 P20 where the other side has no handler, all goes by node, nobody waits, and it is left alone ever longer", async () => {
  const [alice, bob] = [net.talker(), net.talker({ hasP2P: false })];
  assert.equal((await asked(alice.want(bob, 1))).value.n, 1);
  assert.deepEqual(alice.states, ["created", "failed"]);
  for (const [wait, tries] of [
    [29_000, 1],
    [1_100, 2],
    [59_000, 2],
    [1_100, 3],
  ]) {
    await net.turn(wait);
    assert.equal((await asked(alice.want(bob, 2))).value.n, 2);
    assert.equal(alice.states.filter((state) => state === "failed").length, tries);
  }
  assert.equal(bob.byChannel, 0);
});

test("P21 P22 what never opens has failed after fifteen seconds on both sides, and all came by node", async () => {
  net.isBlocked = true;
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  await net.turn();
  await asked(alice.want(bob, 0));
  assert.equal(alice.states.at(-1), "in-progress");
  for (let n = 1; n <= 10; n += 1) alice.tell(bob, n);
  await net.turn(15_100);
  assert.deepEqual([alice.states.at(-1), bob.states.at(-1)], ["failed", "failed"]);
  assert.deepEqual(bob.got, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  assert.equal(net.connections.size, 0);
});

test("P23 P10 invitations that are late, say too little, or are to somebody else, are refused", async () => {
  const [bob, eve] = [net.talker(), net.talker({ hasP2P: false })];
  const object = "connection://d/1";
  for (const each of [object, `${object}/subscription`]) net.claimed.set(each, eve);
  const good = {
    runtime: eve.url,
    p2pHandler: `${eve.url}/p2phandler/1`,
    epoch: "1",
    protocol: "msgnode.1",
    expires: Date.now() / 1000 + 15,
  };
  const invite = (value, to = bob.p2p.handler) =>
    eve.bus
      .request({
        type: "create",
        from: `${object}/subscription`,
        to,
        body: { source: "runtime://d/p2prequester/1", value },
      })
      .catch((error) => error);
  const codes = [
    [{ ...good, expires: 1 }, 410],
    [{ ...good, protocol: "field", runtime: undefined }, 501],
    [{ ...good, epoch: 7 }, 501],
    [{ ...good, runtime: "runtime://d/9" }, 403],
    [{ ...good, runtime: bob.url, p2pHandler: `${bob.url}/p2phandler/1` }, 403],
    [undefined, 501],
  ];
  for (const [value, code] of codes) assert.equal((await asked(invite(value))).code, code);
  assert.equal((await asked(invite(good, `${bob.url}/p2phandler/unknown`))).code, 404);
  assert.equal(bob.p2p.known.size, 0);
  // Nobody confirms this one.
  assert.equal((await asked(invite(good))).code, 200);
  assert.equal(bob.p2p.known.size, 0);
  assert.equal(bob.bus.counters["p2p.not-handled"], 1);
  net.claimed.clear();
});

test("P58 the eleventh invitation in a minute is one too many", async () => {
  const [bob, eve] = [net.talker(), net.talker({ hasP2P: false })];
  net.claimed.set("connection://d/1/subscription", eve);
  const value = {
    runtime: eve.url,
    p2pHandler: `${eve.url}/p2phandler/1`,
    epoch: "1",
    protocol: "msgnode.1",
  };
  const codes = [];
  for (let n = 0; n < 11; n += 1) {
    const body = { source: "runtime://d/p2prequester/1", value };
    const answer = eve.bus.request({
      type: "create",
      from: "connection://d/1/subscription",
      to: bob.p2p.handler,
      body,
    });
    codes.push((await asked(answer.catch((error) => error))).code);
  }
  assert.deepEqual(codes, [...Array(10).fill(200), 429]);
  net.claimed.clear();
});

test("P26 both invite at once, a hundred times: one connection, the smaller URL stays requester, nothing is lost", async () => {
  const numbers = Array.from({ length: 20 }, (_, n) => n);
  const pairs = Array.from({ length: 100 }, (_, run) =>
    ["a", "b"].map((letter) => net.talker({ url: `runtime://d/${run}-${letter}` })),
  );
  for (const { p2p } of net.talkers) p2p.start();
  await net.turn();
  for (const [run, ends] of pairs.entries()) {
    const [alice, bob] = run % 2 ? ends : [...ends].reverse();
    alice.want(bob, 0);
    for (let n = 0; n < run % 13; n += 1) await Promise.resolve();
    bob.want(alice, 0);
  }
  for (const n of numbers.slice(1)) {
    for (const [alice, bob] of pairs) {
      alice.tell(bob, n);
      bob.tell(alice, n);
    }
    await settled();
  }
  await net.turn();
  for (const [run, [smaller, greater]] of pairs.entries()) {
    for (const [one, other] of [
      [smaller, greater],
      [greater, smaller],
    ]) {
      assert.equal(one.wayTo(other), "channel", `run ${run}`);
      assert.deepEqual(one.got, numbers, `run ${run}`);
      assert.ok(!one.states.includes("failed"));
    }
    const [a, b] = [smaller.peerOf(greater), greater.peerOf(smaller)];
    assert.deepEqual([a.isRequester, b.isRequester], [true, false], `run ${run}`);
    assert.equal(a.link.epoch, b.link.epoch);
  }
  assert.ok(net.seen.filter(({ body }) => body?.code === 409).length > 20, "both did invite");
});

/** What comes to a runtime waits from a message on; returns how to let it in, all at once. */
function stall(talker, isFirst) {
  const bring = talker.bring.bind(talker);
  const held = [];
  talker.bring = (message) =>
    held.length || isFirst(message) ? held.push(message) : bring(message);
  return () => {
    talker.bring = bring;
    assert.ok(held.length);
    for (const message of held) bring(message);
  };
}

test("P26 both invite while each confirms the other's invitation: the smaller URL stays requester", async () => {
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  await net.turn();
  const letBobIn = stall(bob, ({ body }) => body.method === "confirm");
  bob.want(alice, 1);
  await net.turn();
  alice.want(bob, 2);
  await net.turn();
  const letAliceIn = stall(alice, () => true);
  letBobIn();
  await net.turn();
  letAliceIn();
  await net.turn();
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
  assert.deepEqual([alice.peerOf(bob).isRequester, bob.peerOf(alice).isRequester], [true, false]);
  assert.ok(![...alice.states, ...bob.states].includes("failed"));
  assert.deepEqual([alice.got, bob.got], [[1], [2]]);
});

test("P33 who was dialled before it dialled again itself has nothing left to do", async () => {
  const [alice, bob] = await connected();
  const timers = net.clock.timers;
  net.connections.values().next().value.close();
  await net.turn();
  await asked(bob.want(alice));
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
  await net.turn(2_000);
  assert.equal(alice.peerOf(bob).hasRedial, false);
  assert.equal(net.clock.timers, timers);
  assert.deepEqual([...alice.errors, ...bob.errors], []);
});

test("P31 P33 numbers keep order and count over channels that are cut in silence and set up again", async () => {
  const [alice, bob] = await connected();
  let said = 0;
  const talk = (count) => {
    for (let n = 0; n < count; n += 1, said += 1) {
      alice.tell(bob, said);
      bob.tell(alice, said);
    }
  };
  alice.got = [];
  bob.got = [];
  for (let round = 0; round < 5; round += 1) {
    talk(40);
    if (round % 2) alice.peerOf(bob).bye("closing");
    else {
      await settled();
      net.cut();
    }
    talk(40);
    await net.turn(13_000);
    talk(10);
    await net.turn(40_000);
    assert.deepEqual(
      [alice.wayTo(bob), bob.wayTo(alice)],
      ["channel", "channel"],
      `round ${round}`,
    );
  }
  for (const { got } of [alice, bob])
    assert.deepEqual(
      got,
      Array.from({ length: said }, (_, n) => n),
    );
  assert.ok(alice.peerOf(bob).link.resent + bob.peerOf(alice).link.resent > 0);
  assert.equal(alice.states.filter((state) => state === "live").length, 6);
});

test("P36 a request by channel whose channel ends is answered once, through the node", async () => {
  const [alice, bob] = await connected();
  const taken = [];
  bob.bus.addListener(`${bob.url}/slow`, (message) => taken.push(message));
  const answers = [];
  alice.bus.postMessage(
    { type: "create", from: alice.app, to: `${bob.url}/slow`, body: {} },
    ({ body }) => answers.push(body.value),
  );
  await net.turn();
  assert.match(taken[0].body.via, /\/p2prequester\//);
  alice.peerOf(bob).bye("idle");
  await net.turn();
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["node", "node"]);
  const [{ id, from, to }] = taken;
  bob.bus.postMessage({
    id,
    type: "response",
    from: to,
    to: from,
    body: { code: 200, value: "late" },
  });
  await net.turn();
  assert.deepEqual(answers, ["late"]);
  assert.equal(taken.length, 1);
  assert.ok(net.seen.some(({ body }) => body?.method === "deliver"));
});

test("P43 a message on a channel for an address that is not there is answered 404", async () => {
  const [alice, bob] = await connected();
  const to = `${bob.url}/nobody`;
  const error = await asked(
    alice.bus.request({ type: "create", from: alice.app, to, body: {} }).catch((each) => each),
  );
  assert.equal(error.code, 404);
});

test("P48 who speaks for others on a channel is answered 403; the tenth time ends it", async () => {
  const [alice, bob] = await connected();
  const peer = alice.peerOf(bob);
  const forged = (n, from) =>
    peer.send({
      id: `x${n}`,
      type: "create",
      from,
      to: bob.app,
      body: { value: { n: 99 }, auth: true },
    });
  forged(0, "runtime://d/77/app");
  await net.turn();
  assert.ok(net.frames.some((frame) => frame.includes('"code":403')));
  for (let n = 1; n < 10; n += 1) forged(n, n % 2 ? "hyperty://d/carol" : "runtime://d/77/app");
  await net.turn();
  assert.equal(bob.bus.counters["p2p.forged"], 10);
  assert.ok(!bob.got.includes(99));
  assert.equal(bob.peerOf(alice).link.isOpen, false);
  assert.equal((await asked(alice.ask(bob, 8))).value.n, 8);
});

test("P49 what a channel says of a sender's identity is taken away", async () => {
  const [alice, bob] = await connected();
  const taken = [];
  bob.bus.addListener(`${bob.url}/who`, (message) => taken.push(message.body));
  const body = { auth: true, assertedIdentity: true, via: "x", peer: "x", value: 1 };
  alice.peerOf(bob).send({ id: 1, type: "update", from: alice.app, to: `${bob.url}/who`, body });
  await net.turn();
  assert.deepEqual(taken, [{ value: 1, via: bob.peerOf(alice).via }]);
});

test("P53 the policies of the runtime decide on what comes by channel", async () => {
  const [alice, bob] = await connected();
  bob.bus.pipelineIn.use((message) =>
    message.from.startsWith("hyperty://") ? { code: 403, desc: "Not you." } : message,
  );
  const from = "hyperty://d/a";
  net.registered[from] = { runtime: alice.url };
  const request = alice.bus.request({
    type: "create",
    from,
    to: "hyperty://d/b",
    body: { value: { n: 1 } },
  });
  request.catch(() => {});
  net.registered["hyperty://d/b"] = { runtime: bob.url };
  bob.bus.addListener("hyperty://d/b", (message) => bob.heard(message));
  alice
    .peerOf(bob)
    .send({ id: "blocked", type: "create", from, to: "hyperty://d/b", body: { value: { n: 2 } } });
  await net.turn();
  assert.ok(
    net.frames.some((frame) => frame.includes('"blocked"') && frame.includes('"code":403')),
  );
  assert.ok(!bob.got.includes(2));
});

test("P54 an unused channel says bye; the next message goes by node, and only one that wants to dials again", async () => {
  const [alice, bob] = await connected({ timers: { idle: 30_000 } });
  await net.turn(31_000);
  assert.deepEqual(
    [alice.wayTo(bob), alice.states.at(-1), bob.states.at(-1)],
    ["node", "disconnected", "disconnected"],
  );
  await asked(alice.ask(bob, 1));
  await net.turn(60_000);
  assert.equal(alice.wayTo(bob), "node");
  await asked(alice.want(bob, 2));
  assert.equal(alice.wayTo(bob), "channel");
});

test("P57 who closes says bye, gives its requester back, and the other goes on by node", async () => {
  const [alice, bob] = await connected();
  const closing = alice.p2p.close();
  await net.turn(3_000);
  await closing;
  assert.deepEqual([bob.wayTo(alice), bob.states.at(-1)], ["node", "disconnected"]);
  assert.equal((await asked(bob.ask(alice, 3))).value.n, 3);
  assert.ok(net.frames.some((frame) => frame === '{"bye":"closing"}'));
});

test("who is not used for ten minutes is forgotten, with its claimed address", async () => {
  const [alice, bob] = await connected({ timers: { idle: 30_000 } });
  const { via } = alice.peerOf(bob);
  assert.equal(net.claimed.get(via), alice);
  await net.turn(900_000);
  assert.deepEqual([alice.p2p.known.size, bob.p2p.known.size, net.claimed.has(via)], [0, 0, false]);
  assert.equal(alice.bus.listenersOf(via).length, 0);
  assert.ok(!alice.states.includes("ended"));
  await asked(alice.want(bob, 5));
  assert.equal(alice.wayTo(bob), "channel");
});
