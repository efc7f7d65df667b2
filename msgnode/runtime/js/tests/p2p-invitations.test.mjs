/** Invitations of who lies about who he is, of many at once, and of who is hung up on meanwhile. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Net } from "./p2p-runtimes.mjs";

let net;

beforeEach(() => {
  net = new Net();
});
afterEach(() => net.end());

/** Invite by hand; resolves with the code of the answer. */
async function invite(
  inviter,
  invited,
  number,
  { source = `runtime://d/p2prequester/${number}`, ...said } = {},
) {
  const from = `connection://d/${number}/subscription`;
  net.claimed.set(from, inviter);
  inviter.bus.addListener(from, () => {});
  const value = { runtime: inviter.url, p2pHandler: inviter.p2p.handler, epoch: "e", ...said };
  const answer = inviter.bus.request({
    type: "create",
    from,
    to: invited.p2p.handler,
    body: { source, value },
  });
  const { code } = await net.asked(answer.catch((error) => error));
  net.claimed.delete(from);
  return code;
}

test("P58 of forty that invite at once thirty-two get a connection", async () => {
  const [hub, ...others] = await net.several(41);
  for (const each of others) each.want(hub);
  await net.turn();
  assert.equal(others.filter((each) => hub.wayTo(each) === "channel").length, 32);
  assert.equal(others.filter(({ states }) => states.includes("failed")).length, 8);
});

test("who invites in the name of another uses up none of his invitations", async () => {
  const [alice, bob, eve] = await net.several(3);
  const named = { runtime: alice.url, p2pHandler: alice.p2p.handler };
  for (let n = 0; n < 20; n += 1)
    assert.equal(await invite(eve, bob, n, { protocol: "msgnode.1", ...named }), 200);
  for (let n = 20; n < 40; n += 1) await invite(eve, bob, n, named); // as of the field, where nobody can be asked
  await net.asked(alice.want(bob));
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
});

test("runtimes of the field begin eight set-ups at a time, whatever they call themselves", async () => {
  const [alice, bob, eve] = await net.several(3);
  const codes = [];
  for (let n = 0; n < 40; n += 1)
    codes.push(await invite(eve, bob, n, { runtime: `runtime://d/x${n}` }));
  assert.deepEqual(codes, [...Array(8).fill(200), ...Array(32).fill(429)]);
  await net.asked(alice.want(bob));
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
});

test("an invitation comes from a stub, and from no other runtime's", async () => {
  const [alice, bob, eve] = await net.several(3);
  const codes = [];
  for (const source of [alice.p2p.handler, `${eve.url}/app`, "hyperty://d/x"])
    codes.push(await invite(eve, bob, 1, { protocol: "msgnode.1", source }));
  assert.deepEqual(codes, [403, 400, 400]);
  await net.asked(bob.want(alice));
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
});

test("P50 no channel opens with who is hung up on while his invitation is handled", async () => {
  net.isBlocked = true;
  const [alice, bob] = await net.several(2);
  await net.asked(alice.want(bob));
  assert.deepEqual(bob.states, ["created", "in-progress"]);
  const { id } = [...net.connections.values()].at(-1);
  bob.bring({
    id: 1,
    type: "execute",
    from: "domain://msg-node.d/p2p",
    to: bob.p2p.handler,
    body: { method: "disconnect", params: [{ peer: alice.url }] },
  });
  await net.turn();
  assert.deepEqual([bob.states.at(-1), net.connections.has(id)], ["failed", false]);
  assert.equal(bob.peerOf(alice).handling, null);
});

test("a channel that opens at the moment of the order is not taken", async () => {
  const [alice, bob] = await net.several(2);
  net.onConnecting = () => {
    for (const [one, other] of [
      [alice, bob],
      [bob, alice],
    ])
      one.peerOf(other).forbid();
  };
  await net.asked(alice.want(bob));
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["node", "node"]);
  for (const { states } of [alice, bob])
    assert.deepEqual([states.at(-1), states.includes("live")], ["failed", false]);
});

test("P28 a set-up that is begun anew does not fail with the one before", async () => {
  net.isBlocked = true;
  const [alice, bob] = await net.several(2);
  await net.asked(alice.want(bob));
  alice.peerOf(bob).dialling.cancel(); // her runtime starts again
  await net.turn();
  alice.peerOf(bob).state = "";
  await net.turn(8_000);
  await net.asked(alice.want(bob));
  await net.turn(8_000);
  assert.deepEqual(bob.states, ["created", "in-progress", "created", "in-progress"]);
  assert.equal(net.connections.size, 2); // of the one that runs
});

test("P20 a side that cannot be described has failed, and is left alone for a while", async () => {
  const [alice, bob] = await net.several(2);
  net.onDescribing = () => {
    throw new Error("no socket is left");
  };
  assert.equal((await net.asked(alice.want(bob, 1))).value.n, 1);
  assert.deepEqual([alice.states, alice.errors], [["created", "failed"], []]);
  net.onDescribing = () => {};
  await net.turn(40_000);
  await net.asked(alice.want(bob, 2));
  assert.equal(alice.wayTo(bob), "channel");
});

test("P29 two tabs of one runtime URL that invite at the same moment have a connection each", async () => {
  const [bob, tab] = await net.several(2);
  const newer = net.talker({ url: tab.url });
  newer.p2p.start();
  await net.turn();
  for (const each of [tab, newer]) each.want(bob);
  await net.turn();
  assert.deepEqual([tab.wayTo(bob), newer.wayTo(bob)], ["channel", "channel"]);
  assert.deepEqual(
    [...bob.p2p.known].map(({ link }) => link.way),
    ["channel", "channel"],
  );
  await net.turn(20_000);
  for (const { states } of [tab, newer])
    assert.deepEqual(states, ["created", "in-progress", "live"]);
});
