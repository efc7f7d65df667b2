/** Lost connections are dialled again, ever later, until the other side is back; set-ups that failed are not. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Net } from "./p2p-runtimes.mjs";

const MINUTE = 60_000;
let net;

beforeEach(() => (net = new Net()));
afterEach(() => net.end());

/** When alice invited bob, in ms from now on. */
function invitations(bob) {
  const began = net.clock.now();
  const found = [];
  net.refuses = ({ type, to }) => {
    if (type === "create" && to === bob.p2p.handler) found.push(net.clock.now() - began);
    return 0;
  };
  return found;
}

/** Bob is stopped: nobody hears of him, and he hears nothing. */
async function stop(bob) {
  net.cut();
  bob.isGone = true;
  await net.turn(13_000);
}

test("P55 a runtime that is stopped is dialled again until it is back, without a message that asks for it", async () => {
  const [alice, bob] = await net.connected();
  await stop(bob);
  await net.turn(10_000);
  assert.equal(alice.states.at(-1), "failed");
  bob.isGone = false;
  await net.turn(MINUTE);
  assert.deepEqual(alice.states.slice(-3), ["created", "in-progress", "live"]);
  assert.match((await net.asked(alice.ask(bob, 1))).cameBy, /p2prequester/);
});

test("P33 who stays away is dialled for ten minutes, each time after the time that it is left alone", async () => {
  const [alice, bob] = await net.connected();
  const at = invitations(bob);
  await stop(bob);
  for (let minute = 0; minute < 60; minute += 1) await net.turn(MINUTE);
  assert.ok(at.length >= 4 && at.length <= 6 && at.at(-1) < 10 * MINUTE + 13_000, String(at));
  const between = at.slice(1).map((each, index) => each - at[index]);
  for (const [index, each] of between.entries())
    assert.ok(each >= 30_000 * 2 ** index && each < 30_000 * 2 ** index + 7_000, String(between));
  assert.equal(alice.states.at(-1), "failed");
  bob.isGone = false;
  await net.asked(alice.want(bob, 1));
  await net.turn(1_000);
  assert.equal(alice.states.at(-1), "live", "a message asks for it");
});

for (const [name, code, tries] of [
  ["refuses", 403, 1],
  ["cannot be reached", 503, 5],
]) {
  test(`P20 P33 a node that ${name} (${code}) is asked ${tries} times for a lost connection`, async () => {
    const [alice, bob] = await net.connected();
    let count = 0;
    net.refuses = ({ type, to }) =>
      type === "create" && to === bob.p2p.handler ? ((count += 1), code) : 0;
    net.cut();
    for (let minute = 0; minute < 60; minute += 1) await net.turn(MINUTE);
    assert.equal(count, tries);
    assert.equal(alice.states.at(-1), "failed");
  });
}

test("P20 a set-up that a message asked for, and that failed, waits for another message", async () => {
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  const at = invitations(bob);
  net.isBlocked = true;
  await net.asked(alice.want(bob, 1));
  for (let minute = 0; minute < 60; minute += 1) await net.turn(MINUTE);
  assert.equal(at.length, 1);
});

test("P50 who is ordered to hang up while a try is planned does not dial", async () => {
  const [alice, bob] = await net.connected();
  await stop(bob);
  await net.turn(10_000);
  bob.isGone = false;
  const at = invitations(bob);
  const peer = alice.peerOf(bob);
  assert.ok(peer.hasRedial);
  peer.forbid();
  for (let minute = 0; minute < 60; minute += 1) await net.turn(MINUTE);
  assert.equal(at.length, 0);
});

test("P29 the connection with a tab that was closed is not dialled again: at its handler the newer tab would answer", async () => {
  const [alice, tab] = await net.connected({}, { handlerId: "kept" });
  const newer = net.talker({ handlerId: "kept", url: tab.url });
  newer.p2p.start();
  await net.turn();
  await net.asked(newer.want(alice));
  const at = invitations(tab);
  const closing = tab.p2p.close();
  await net.turn(5_000);
  await closing;
  tab.isGone = true;
  await net.turn(MINUTE);
  assert.deepEqual(at, []);
  assert.deepEqual([alice.wayTo(newer), newer.wayTo(alice)], ["channel", "channel"]);
  assert.match((await net.asked(alice.want(newer, 1))).cameBy, /p2prequester/);
});

test("P33 a set-up of the other side that came in the place of a try, and failed, is followed by the next try", async () => {
  const [alice, bob] = await net.connected();
  net.cut();
  net.isBlocked = true;
  for (let tenths = 0; tenths < 200 && bob.wayTo(alice) !== "node"; tenths += 1)
    await net.turn(100);
  const at = invitations(bob);
  await net.asked(bob.want(alice));
  await net.turn(14_000);
  assert.deepEqual([at.length, alice.states.at(-1)], [0, "in-progress"]);
  await net.turn(2_000);
  assert.equal(alice.states.at(-1), "failed");
  net.isBlocked = false;
  await net.turn(MINUTE);
  assert.deepEqual([at.length, alice.states.at(-1)], [1, "live"]);
});

test("P20 P33 a try that comes while the other side is left alone is made when it is not any more", async () => {
  const [alice, bob] = await net.connected();
  await stop(bob);
  await net.turn(10_000);
  bob.isGone = false;
  const peer = alice.peerOf(bob);
  assert.ok(alice.states.at(-1) === "failed" && peer.hasRedial);
  const at = invitations(bob);
  peer.hasRedial = false; // as when the timer goes off a little early
  alice.p2p.dial(peer.runtime, peer.handler);
  assert.ok(at.length === 0 && peer.hasRedial);
  await net.turn(MINUTE);
  assert.equal(alice.states.at(-1), "live");
});

test("P29 P55 a tab that has a handler of its own is dialled again, whichever came last", async () => {
  const [alice, tab] = await net.connected({}, { handlerId: "one" });
  const newer = net.talker({ handlerId: "other", url: tab.url });
  newer.p2p.start();
  await net.turn();
  await net.asked(newer.want(alice));
  const at = invitations(tab);
  net.cut();
  await net.turn(MINUTE);
  assert.deepEqual(
    [at.length, alice.p2p.connections.map(({ way }) => way)],
    [1, ["channel", "channel"]],
  );
});
