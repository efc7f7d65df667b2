/** In which runtime an address is: by the registry's word for all, by a sender's own word for him alone. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Net } from "./p2p-runtimes.mjs";

const URL = "hyperty://d/echo";
let net;

beforeEach(() => {
  net = new Net();
});
afterEach(() => net.end());

/** Runtimes of which the second has a hyperty. */
async function several(count) {
  const all = await net.several(count);
  const [, bob] = all;
  net.claimed.set(URL, bob);
  net.registered[URL] = { runtime: bob.url, ...bob.p2p.registration };
  bob.bus.addListener(URL, (message) => bob.heard(message));
  return all;
}

const ask = (talker, n, body = {}, from = talker.app) =>
  net.asked(
    talker.bus
      .request({ type: "create", from, to: URL, body: { value: { n }, ...body } })
      .catch((error) => error),
  );
const reads = () => net.seen.filter(({ to }) => to === "domain://registry.d").length;

test("a channel is used for an address as long as it lives, and the registry is asked again every ten minutes", async () => {
  const [alice] = await several(2);
  await ask(alice, 0, { p2p: true });
  for (let n = 1; n < 15; n += 1) {
    assert.match((await ask(alice, n)).cameBy, /\/p2prequester\//);
    await net.turn(100_000);
  }
  assert.equal(reads(), 2);
});

test("an address that has moved is not looked for at the other end of a channel", async () => {
  const [alice, bob, carol] = await several(3);
  await ask(alice, 0, { p2p: true });
  for (let n = 1; n < 7; n += 1) {
    await ask(alice, n);
    await net.turn(100_000);
  }
  bob.bus.removeAllListenersOf(URL);
  carol.bus.addListener(URL, (message) => carol.heard(message));
  net.claimed.set(URL, carol);
  net.registered[URL] = { runtime: carol.url, ...carol.p2p.registration };
  await ask(alice, 7);
  assert.equal((await ask(alice, 8)).value.n, 8);
  assert.deepEqual(carol.got, [8]);
});

const tell = (talker, n, body = {}, from = talker.app) => {
  talker.bus.postMessage({ type: "update", from, to: URL, body: { value: { n }, ...body } });
  return net.turn();
};

test("P17 what one sender says of his receiver's runtime leads no other's messages there", async () => {
  const [alice, bob, eve] = await several(3);
  eve.bus.addListener(URL, (message) => eve.heard(message));
  const other = `${alice.url}/other`;
  await tell(alice, 1, { p2p: true, p2pHandler: eve.p2p.handler }, other);
  assert.deepEqual([alice.wayTo(eve), reads()], ["channel", 0]);
  await tell(alice, 2, {}, other);
  await tell(alice, 3);
  assert.deepEqual([eve.got, bob.got], [[2], [1, 3]], "he who says so is led there");
  await tell(alice, 4, { p2p: true });
  await tell(alice, 5);
  await tell(alice, 6, {}, other);
  assert.deepEqual([eve.got, bob.got], [[2], [1, 3, 4, 5, 6]], "the registry knows better");
  assert.equal(reads(), 1);
});

test("P48 nor does it let the other end of a channel speak as that receiver", async () => {
  const [alice, , eve] = await several(3);
  await tell(alice, 1, { p2p: true, p2pHandler: eve.p2p.handler });
  assert.equal(alice.wayTo(eve), "channel");
  const peer = eve.peerOf(alice);
  eve.p2p.send(peer, {
    id: 1,
    type: "update",
    from: URL,
    to: alice.app,
    body: { value: { n: 9 } },
  });
  await net.turn();
  assert.deepEqual(alice.got, []);
  assert.ok(alice.errors.some(({ reason }) => reason === "p2p.forged"));
});

test("P48 who speaks as another, again and again, does not keep that one's channel waiting for its look-up", async () => {
  const [alice, bob, eve] = await several(3);
  for (const each of [bob, eve]) assert.equal((await net.asked(each.want(alice))).value.n, -1);
  const [said, received] = [[], net.received.bind(net)];
  net.received = (talker, message) =>
    message.to === "domain://registry.d" ? said.push([talker, message]) : received(talker, message);
  const from = (talker, n) =>
    talker.p2p.send(talker.peerOf(alice), {
      id: n,
      type: "update",
      from: URL,
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

test("what went through the node is not overtaken once it is known where to", async () => {
  const [alice, bob] = await net.connected();
  net.claimed.set(URL, bob);
  bob.bus.addListener(URL, (message) => bob.heard(message));
  const [held, bring] = [[], bob.bring];
  bob.bring = (message) => held.push(message); // the node takes its time
  await tell(alice, 1);
  net.registered[URL] = { runtime: bob.url, ...bob.p2p.registration };
  await tell(alice, 2, { p2p: true }); // looks where that is
  const before = bob.got.length;
  const byChannel = bob.byChannel;
  for (const n of [3, 4]) await tell(alice, n);
  assert.equal(bob.got.length, before);
  bob.bring = bring;
  for (const message of held) bob.bring(message);
  await net.turn();
  assert.deepEqual(bob.got.slice(before), [1, 2, 3, 4]);
  assert.equal(bob.byChannel - byChannel, 2);
});
