/** Runtimes with direct connections, beyond the cases that both languages share: what is JavaScript's, or needs many. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { settled } from "./fake-clock.mjs";
import { Net } from "./p2p-runtimes.mjs";

let net;

beforeEach(() => {
  net = new Net();
});
afterEach(() => net.end());

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

test("P49 what a channel says of a sender's identity is taken away", async () => {
  const [alice, bob] = await net.connected();
  const taken = [];
  bob.bus.addListener(`${bob.url}/who`, (message) => taken.push(message.body));
  const body = { auth: true, assertedIdentity: true, via: "x", peer: "x", value: 1 };
  alice.peerOf(bob).send({ id: 1, type: "update", from: alice.app, to: `${bob.url}/who`, body });
  await net.turn();
  assert.deepEqual(taken, [{ value: 1, via: bob.peerOf(alice).via }]);
});

test("P53 the policies of the runtime decide on what comes by channel", async () => {
  const [alice, bob] = await net.connected();
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

test("P41 what has many readers goes through the node, although one of them is on a channel", async () => {
  const [alice, bob] = await net.connected();
  const [object, carol] = ["comm://d/object", net.talker({ hasP2P: false })];
  for (const each of [bob, carol])
    each.bus.addListener(`${object}/changes`, ({ body }) => each.got.push(body.value.n));
  net.claimed.set(`${object}/changes`, {
    bring: (message) => [bob, carol].forEach((each) => each.bring(message)),
  });
  const before = [net.frames.length, bob.got.length];
  for (let n = 0; n < 5; n += 1)
    alice.bus.postMessage({
      type: "update",
      from: object,
      to: `${object}/changes`,
      body: { value: { n } },
    });
  await net.turn();
  assert.deepEqual(bob.got.slice(before[1]), [0, 1, 2, 3, 4]);
  assert.deepEqual(carol.got, [0, 1, 2, 3, 4]);
  assert.equal(net.frames.length, before[0]);
});

test("P45 texts as contents of messages arrive as they were, whatever their length", async () => {
  const [alice, bob] = await net.connected();
  const came = [];
  bob.bus.addListener(`${bob.url}/contents`, ({ body }) => came.push(body.value.content));
  const contents = [0, 1, 16_384, 16_385, 40_000].map((length) =>
    "ü🙂".repeat(length).slice(0, length),
  );
  for (const content of contents) {
    alice.bus.postMessage({
      type: "update",
      from: alice.app,
      to: `${bob.url}/contents`,
      body: { value: { content } },
    });
  }
  await net.turn();
  assert.deepEqual(came, contents);
  assert.ok(net.frames.some((frame) => frame.includes('"part":[2,3]')));
});

/** Requests to an address of Bob's that have come on the channel, which has ended since: what they are answered. */
async function askedByChannel(alice, bob, count = 1) {
  const url = "hyperty://d/echo";
  net.registered[url] = { runtime: bob.url, ...bob.p2p.registration };
  net.claimed.set(url, bob);
  const came = [];
  bob.bus.addListener(url, (message) => came.push(message));
  const ask = () =>
    alice.bus
      .request({ type: "read", from: alice.app, to: url, body: { p2p: true } })
      .catch((error) => error);
  ask(); // it is looked up
  await net.turn();
  came.length = 0;
  const answers = Array.from({ length: count }, ask);
  await net.turn();
  for (const { body } of came) assert.match(body.via, /\/p2prequester\//);
  for (const { channel } of net.connections.values()) channel.close();
  await net.turn();
  const reply = (n, body) =>
    bob.bus.postMessage({ id: came[n].id, type: "response", from: url, to: came[n].from, body });
  return { answers, reply };
}

test("P45 who waits for bytes that find no channel is told", async () => {
  const [alice, bob] = await net.connected();
  const { answers, reply } = await askedByChannel(alice, bob);
  reply(0, { code: 200, value: { content: new Uint8Array([1, 2, 3]).buffer } });
  assert.equal((await net.asked(answers[0])).code, 503);
  bob.bus.addListener(`${bob.url}/bytes`, ({ id, from, to }) => {
    bob.bus.postMessage({
      id,
      type: "response",
      from: to,
      to: from,
      body: { code: 200, value: { content: new Uint8Array([1]) } },
    });
  });
  alice.peerOf(bob).bye("idle");
  await net.turn();
  const byNode = alice.bus
    .request({ type: "read", from: alice.app, to: `${bob.url}/bytes`, body: {} })
    .catch((error) => error);
  assert.equal((await net.asked(byNode)).code, 503);
});

test("who sends and does not read the answers ends his channel", async () => {
  const [alice, bob] = await net.connected();
  const [channel] = [...net.channels].filter(({ readyState }) => readyState === "open");
  for (const each of net.channels) each.bufferedAmount = 2 * 1024 * 1024;
  for (const [one, other] of [
    [alice, bob],
    [bob, alice],
  ])
    one.peerOf(other).toChannel('{"pong":1}');
  await net.turn();
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
  for (const each of net.channels) each.bufferedAmount += 1;
  alice.peerOf(bob).toChannel('{"pong":1}');
  await net.turn();
  assert.deepEqual(
    [alice.wayTo(bob), bob.wayTo(alice), channel.readyState],
    ["node", "node", "closed"],
  );
});

/** Bob is stopped: nobody hears of him, and he hears nothing. */
async function stop(bob) {
  net.cut();
  bob.isGone = true;
  await net.turn(13_000);
}

test("P20 P33 a try that comes while the other side is left alone is made when it is not any more", async () => {
  const [alice, bob] = await net.connected();
  await stop(bob);
  await net.turn(10_000);
  bob.isGone = false;
  const peer = alice.peerOf(bob);
  assert.ok(alice.states.at(-1) === "failed" && peer.hasRedial);
  const tried = () =>
    net.seen.filter(({ type, to }) => type === "create" && to === bob.p2p.handler).length;
  const before = tried();
  peer.hasRedial = false; // as when the timer goes off a little early
  alice.p2p.dial(peer.runtime, peer.handler);
  assert.ok(tried() === before && peer.hasRedial);
  await net.turn(60_000);
  assert.equal(alice.states.at(-1), "live");
});

test("P48 who speaks as another, again and again, does not keep that one's channel waiting for its look-up", async () => {
  const [alice, bob, eve] = await net.several(3);
  net.registered["hyperty://d/echo"] = { runtime: bob.url, ...bob.p2p.registration };
  for (const each of [bob, eve]) assert.equal((await net.asked(each.want(alice))).value.n, -1);
  const [said, received] = [[], net.received.bind(net)];
  net.received = (talker, message) =>
    message.to === "domain://registry.d" ? said.push([talker, message]) : received(talker, message);
  const from = (talker, n) =>
    talker.p2p.send(talker.peerOf(alice), {
      id: n,
      type: "update",
      from: "hyperty://d/echo",
      to: alice.app,
      body: { value: { n } },
    });
  for (let n = 1; n <= 1_000; n += 1) from(eve, n); // as many as may be under way
  await net.turn();
  from(bob, 2_000);
  await net.turn();
  assert.deepEqual(
    [alice.got.filter((n) => n > 0), said.length],
    [[], 1],
    "alice asks whose that is, once",
  );
  net.received = received;
  for (const each of said) received(...each);
  await net.turn();
  assert.deepEqual(
    alice.got.filter((n) => n > 0),
    [2_000],
  );
  assert.ok(alice.errors.some(({ reason }) => reason === "p2p.forged"));
});
