/** What other runtimes may do: invite first, be refused by the node, start again. Cases of docs/reference/p2p.md. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Net } from "./p2p-runtimes.mjs";

let net;

beforeEach(() => {
  net = new Net();
});
afterEach(() => net.end());

/** Set-ups that were begun at a runtime's handler. */
const invitations = ({ p2p }) =>
  net.seen.filter(({ type, to }) => type === "create" && to === p2p.handler);

test("P1 a runtime announces its handler when its session is live, and keeps it over a restart", async () => {
  const [first, other] = [net.talker({ handlerId: "kept" }), net.talker()];
  assert.deepEqual(net.seen, []);
  for (const { p2p } of [first, other]) p2p.start();
  await net.turn();
  assert.deepEqual(
    net.seen.map(({ body }) => body.resources),
    [[`${first.url}/p2phandler/kept`], [other.p2p.handler]],
  );
  assert.equal(net.claimed.get(first.p2p.handler), first);
  first.isGone = true;
  const again = net.talker({ handlerId: "kept", url: first.url });
  again.p2p.start();
  await net.turn();
  assert.equal(again.p2p.handler, first.p2p.handler);
  assert.equal(net.claimed.get(first.p2p.handler), again);
});

test("P25 a runtime that is being invited does not invite the other one", async () => {
  net.isBlocked = true;
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  await net.turn();
  await net.asked(alice.want(bob));
  assert.deepEqual(bob.states, ["created", "in-progress"]);
  for (let n = 0; n < 3; n += 1) await net.asked(bob.want(alice, n));
  assert.deepEqual([invitations(bob).length, invitations(alice).length], [1, 0]);
  assert.deepEqual(alice.got, [0, 1, 2]);
});

test("P13 P20 what the node refuses has failed with its words, is not tried again at once, and leaves nothing", async () => {
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  await net.turn();
  let code;
  net.refuses = ({ type, to }) => (type === "create" && to === bob.p2p.handler ? code : 0);
  let tries = 0;
  for (code of [403, 404, 429, 503]) {
    assert.equal((await net.asked(alice.want(bob, code))).value.n, code);
    assert.deepEqual([alice.states.at(-1), alice.reasons.at(-1)], ["failed", "The node refuses."]);
    assert.equal(invitations(bob).length, (tries += 1));
    await net.asked(alice.want(bob, code)); // it is left alone for a while
    assert.equal(invitations(bob).length, tries);
    assert.equal(
      [...net.claimed.keys()].filter((each) => each.startsWith("connection:")).length,
      0,
    );
    await net.turn(500_000);
  }
  assert.deepEqual(bob.states, []);
  assert.equal(bob.byChannel, 0);
});

test("P28 a runtime that starts again knows nothing of the channel: what may be lost is said, and a new one comes about", async () => {
  const [alice, bob] = await net.connected({}, { handlerId: "kept" });
  const before = alice.peerOf(bob).link.epoch;
  const told = [];
  alice.bus.addListener(alice.app, ({ type, body }) => type === "response" && told.push(body.code));
  net.cut();
  bob.isGone = true;
  const lost = alice.ask(bob, 1).catch((error) => error);
  for (let n = 2; n < 5; n += 1) alice.tell(bob, n);
  const again = net.talker({ handlerId: "kept", url: bob.url });
  again.p2p.start();
  await net.turn(12_100);
  const error = await lost;
  assert.equal(error.code, 503);
  assert.match(error.message, /lost at switch-over/);
  assert.deepEqual(told, [503, 503, 503]); // the sender of what awaits no answer hears of it, too
  assert.deepEqual(alice.states.slice(0, 4), ["created", "in-progress", "live", "disconnected"]);
  alice.tell(again, 5);
  await net.turn(2_000);
  assert.deepEqual([alice.wayTo(again), again.wayTo(alice)], ["channel", "channel"]);
  assert.notEqual(alice.peerOf(again).link.epoch, before);
  assert.equal((await net.asked(alice.ask(again, 6))).value.n, 6);
  assert.deepEqual(again.got, [5, 6]); // nothing twice
});

test("P29 two tabs of one runtime URL have a connection each, and answers return to the one that asked", async () => {
  const [tab, bob] = await net.connected();
  const other = net.talker({ url: tab.url });
  other.p2p.start();
  await net.turn();
  other.want(bob); // the node answers to one of the two
  await net.turn();
  assert.deepEqual([tab.wayTo(bob), other.wayTo(bob)], ["channel", "channel"]);
  assert.equal(bob.p2p.connections.filter(({ state }) => state === "live").length, 2);
  for (let n = 0; n < 20; n += 1) {
    const [one, two] = [tab.ask(bob, n), other.ask(bob, 100 + n)];
    await net.turn();
    assert.deepEqual([(await one).value.n, (await two).value.n], [n, 100 + n]);
    assert.match((await one).cameBy, /\/p2prequester\//);
    assert.match((await two).cameBy, /\/p2prequester\//);
  }
  bob.tell(tab, 7); // what is no answer goes to the one that came last
  await net.turn();
  assert.deepEqual([tab.got, other.got], [[], [7]]);
  other.p2p.close();
  await net.turn(1_000);
  assert.equal(tab.wayTo(bob), "channel");
  assert.equal((await net.asked(tab.ask(bob, 8))).value.n, 8);
});

test("P14 a registry that tells no handler is not asked again and nobody is dialled", async () => {
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  const url = "hyperty://d/hidden";
  net.claimed.set(url, bob);
  net.registered[url] = { runtime: bob.url };
  bob.bus.addListener(url, (message) => bob.heard(message));
  for (let n = 0; n < 3; n += 1) {
    assert.equal(
      (
        await net.asked(
          alice.bus.request({
            type: "create",
            from: alice.app,
            to: url,
            body: { value: { n }, p2p: true },
          }),
        )
      ).value.n,
      n,
    );
  }
  assert.equal(net.seen.filter(({ to }) => to === "domain://registry.d").length, 1);
  assert.deepEqual([alice.states, alice.p2p.known.size, bob.byChannel], [[], 0, 0]);
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

test("P36 an answer whose request came on the channel waits until it is known whose it is", async () => {
  const [alice, bob] = await net.connected();
  const { answers, reply } = await askedByChannel(alice, bob, 2);
  const reads = () => net.seen.filter(({ to }) => to === "domain://registry.d").length;
  const before = reads();
  reply(0, { code: 404 }); // whoever says so is looked up again
  reply(1, { code: 200, value: 1 });
  await net.turn();
  assert.deepEqual(
    [(await answers[0]).code, (await answers[1]).value, reads()],
    [404, 1, before + 1],
  );
  assert.deepEqual(bob.errors, []);
});

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

test("P50 the node orders to hang up: both sides leave the channel at once, and nobody dials by himself", async () => {
  const [alice, bob] = await net.connected();
  const order = (from, peer = alice.url) => {
    bob.bring({
      id: from,
      type: "execute",
      from,
      to: bob.p2p.handler,
      body: { method: "disconnect", params: [{ peer }] },
    });
    return net.turn();
  };
  for (const from of [alice.app, "domain://msg-node.e/p2p", "domain://registry.d"])
    await order(from);
  await order("domain://msg-node.d/p2p", "runtime://d/unknown");
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
  await order("domain://msg-node.d/p2p");
  assert.deepEqual([alice.states.at(-1), bob.states.at(-1)], ["disconnected", "disconnected"]);
  assert.ok(net.frames.includes('{"bye":"forbidden"}'));
  await net.turn(120_000);
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["node", "node"]);
  assert.equal((await net.asked(alice.ask(bob, 3))).value.n, 3); // what the node lets through
});

test("P50 an order to hang up ends a set-up that runs", async () => {
  net.isBlocked = true;
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  await net.turn();
  await net.asked(alice.want(bob, 1));
  const { via } = alice.peerOf(bob);
  alice.bring({
    id: 1,
    type: "execute",
    from: "domain://msg-node.d/p2p",
    to: via,
    body: { method: "disconnect", params: [{ peer: bob.url }] },
  });
  await net.turn();
  assert.equal(alice.states.at(-1), "failed");
  assert.deepEqual(alice.reasons, ["forbidden"]);
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
