/** Channels to runtimes with the P2P stubs of the field; the numbers of cases are those of docs/reference/p2p.md. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { answerTo } from "../src/messages.js";
import { FakeConnection, Net } from "./p2p-runtimes.mjs";

let net;

beforeEach(() => {
  net = new Net();
});
afterEach(() => net.end());

const NEEDED = ["url", "name", "created", "reporter", "runtime", "schema"];

/**
 * A runtime of the field, as its runtime core 0.17 was seen to do: no confirm, an object before its description,
 * frames with a uuid alone; it takes no object whose answer lacks one of what it NEEDS.
 */
class Field {
  raised = [];
  frames = [];
  node = []; // what came through the node
  channel = null;
  #all = [];
  #ends = [];

  constructor() {
    this.talker = net.talker({ hasP2P: false });
    const { bus, url } = this.talker;
    this.bus = bus;
    this.url = url;
    this.app = `${url}/app`;
    this.handler = `${url}/p2phandler/field`;
    this.requester = "runtime://d/p2prequester/field";
    net.claimed.set(this.requester, this.talker);
    bus.addListener(this.handler, (message) => this.invited(message));
    bus.addListener(this.app, (message) => this.node.push(message));
  }

  /** An object of ours, whose description comes when `describe` is called. */
  async announce(own, to, claimed = this.url) {
    const url = `connection://d/${Math.random()}`;
    for (const each of [url, `${url}/subscription`]) net.claimed.set(each, this.talker);
    let wasRead;
    const read = new Promise((resolve) => (wasRead = resolve));
    const listening = this.bus.addListener(`${url}/subscription`, (message) => {
      const data = { connectionDescription: {}, iceCandidates: [], runtimeURL: this.url };
      this.bus.postMessage(answerTo(message, { code: 200, value: { url, version: 0, data } }));
      wasRead();
    });
    const value = { name: "P2PConnection", reporter: own, runtimeURL: claimed };
    const answer = this.bus.request({
      type: "create",
      from: `${url}/subscription`,
      to,
      body: { source: own, schema: "x", value },
    });
    const end = () => {
      listening.remove();
      for (const each of [url, `${url}/subscription`]) net.claimed.delete(each);
    };
    this.#ends.push(end);
    await answer.catch(() => {});
    const change = (attribute, said) =>
      this.bus.postMessage({
        type: "update",
        from: url,
        to: `${url}/changes`,
        body: { attribute, value: said },
      });
    return { answer, read, change };
  }

  async described(url, own) {
    const message = {
      type: "subscribe",
      from: `${this.url}/sm`,
      to: `${url}/subscription`,
      body: { subscriber: own },
    };
    const { value } = await this.bus.request(message);
    const lacking = NEEDED.find((name) => !value[name]);
    if (lacking) throw new Error(`${lacking} mandatory parameter is missing`);
    return value.data.connectionDescription;
  }

  connection() {
    this.made = new FakeConnection(net, {});
    this.#all.push(this.made);
    this.made.ondatachannel = ({ channel }) => this.watch(channel);
    return this.made;
  }

  watch(channel) {
    this.channel = channel;
    channel.onmessage = ({ data }) => {
      this.frames.push(data);
      if (typeof data === "string" && !JSON.parse(data).uuid) this.raised.push(data);
    };
  }

  /** As handler. */
  async invited(message) {
    this.bus.postMessage(answerTo(message, { code: 200 }));
    const made = this.connection();
    await made.setRemoteDescription(
      await this.described(message.from.replace("/subscription", ""), this.handler),
    );
    const object = await this.announce(this.handler, message.body.source);
    await made.setLocalDescription();
    await object.read;
    this.change(object, made.localDescription);
  }

  /** As requester. */
  async invite(handler, claimed) {
    const made = this.connection();
    this.watch(made.createDataChannel("P2PChannel", {}));
    const taken = this.bus.addListener(this.requester, async (message) => {
      this.bus.postMessage(answerTo(message, { code: 200 }));
      const found = await this.described(
        message.from.replace("/subscription", ""),
        this.requester,
      ).catch((error) => this.raised.push(error));
      if (found.sdp) await made.setRemoteDescription(found);
    });
    const object = await this.announce(this.requester, handler, claimed);
    await made.setLocalDescription();
    await object.read;
    this.change(object, made.localDescription);
    this.#ends.push(() => taken.remove());
  }

  change({ change }, { sdp, type }) {
    change("iceCandidates.0", [{ candidate: "candidate:1", sdpMid: null, sdpMLineIndex: null }]);
    for (const each of ["", "nonsense", "candidate:1", "x".repeat(5_000), 7])
      change("iceCandidates.1", [{ candidate: each }]);
    change("connectionDescription.sdp", sdp);
    change("connectionDescription.type", type);
  }

  say(to, n, more = {}) {
    const message = {
      id: `f${n}`,
      type: "update",
      from: this.app,
      to,
      body: { value: { n } },
      ...more,
    };
    this.channel.send(
      JSON.stringify({
        uuid: "u",
        data: { uuid: "u", sendingTime: 1, dataSize: 0, textMessage: message },
      }),
    );
  }

  close() {
    for (const each of this.#all) each.close();
    for (const end of this.#ends) end();
  }
}

async function together(role) {
  const [alice, field] = [net.talker(), new Field()];
  alice.p2p.start();
  await net.turn();
  if (role === "requester") {
    const named = { p2p: true, p2pHandler: field.handler, p2pRequester: "x" };
    alice.bus.postMessage({
      type: "update",
      from: alice.app,
      to: field.app,
      body: { value: { n: -1 }, ...named },
    });
  } else field.invite(alice.p2p.handler);
  for (let turns = 0; turns < 5; turns += 1) await net.turn(); // each step is a message
  assert.equal(alice.p2p.known.of(field.url).link.way, "channel");
  return [alice, field];
}

const tell = (alice, field, value) =>
  alice.bus.postMessage({ type: "update", from: alice.app, to: field.app, body: { value } });

for (const role of ["requester", "handler"]) {
  test(`P24 P18 P19 a channel with the field carries messages both ways; we are ${role}`, async () => {
    const [alice, field] = await together(role);
    assert.deepEqual(alice.states, ["created", "in-progress", "live"]);
    for (let n = 0; n < 20; n += 1) {
      tell(alice, field, { n });
      field.say(alice.app, n);
    }
    await net.turn();
    assert.deepEqual(
      field.frames.map((frame) => JSON.parse(frame).data.textMessage.body.value.n),
      Array.from({ length: 20 }, (_, n) => n),
    );
    assert.deepEqual(
      alice.got,
      Array.from({ length: 20 }, (_, n) => n),
    );
    assert.deepEqual(field.raised, []);
    alice.bus.request({ type: "create", from: alice.app, to: field.app, body: {} }).catch(() => {});
    await net.turn();
    assert.equal(field.node.at(-1).type, "create", "a request goes through the node");
    field.close();
  });
}

test("a hyperty of a runtime of the field that has dialled is looked up once, and has the channel then", async () => {
  const [alice, field] = await together("handler");
  const there = "hyperty://d/field";
  const reads = () => net.seen.filter(({ body }) => body?.resource === there).length;
  net.claimed.set(there, field.talker);
  net.registered[there] = { runtime: field.url, p2pHandler: field.handler };
  field.bus.addListener(there, (message) => field.node.push(message));
  const say = (to, n) =>
    alice.bus.postMessage({ type: "update", from: alice.app, to, body: { value: { n } } });
  for (let n = 0; n < 4; n += 1) {
    say(there, n);
    say("hyperty://d/elsewhere", n);
    say("hyperty://other/field", n);
    await net.turn();
  }
  assert.deepEqual(
    field.frames.map((frame) => JSON.parse(frame).data.textMessage.body.value.n),
    [1, 2, 3],
  );
  assert.deepEqual([field.node.length, reads()], [1, 1]);
  const asked = net.seen.filter(({ type, to }) => type === "read" && to.includes("//registry."));
  assert.equal(asked.length, 2, "another domain is not asked");
  field.close();
});

test("P27 both invite at once: each message comes once", async () => {
  const [alice, field] = [net.talker(), new Field()];
  alice.p2p.start();
  await net.turn();
  const named = { p2p: true, p2pHandler: field.handler, p2pRequester: "x" };
  alice.bus.postMessage({
    type: "update",
    from: alice.app,
    to: field.app,
    body: { value: {}, ...named },
  });
  field.invite(alice.p2p.handler).catch(() => {});
  await net.turn();
  assert.equal(alice.p2p.known.of(field.url).link.way, "channel");
  for (let n = 0; n < 10; n += 1) tell(alice, field, { n });
  await net.turn();
  assert.deepEqual(
    field.frames.map((frame) => JSON.parse(frame).data.textMessage.body.value.n),
    Array.from({ length: 10 }, (_, n) => n),
  );
  assert.ok(!alice.states.includes("failed"));
  field.close();
});

test("what may be lost with the field's channel is said to its sender", async () => {
  const [alice, field] = await together("requester");
  const answers = [];
  alice.bus.addListener(`${alice.url}/sender`, (message) =>
    answers.push([message.id, message.body.code]),
  );
  alice.bus.postMessage({
    id: "unsure",
    type: "update",
    from: `${alice.url}/sender`,
    to: field.app,
    body: {},
  });
  await net.turn();
  field.channel.close();
  await net.turn();
  assert.deepEqual(answers, [["unsure", 503]]);
  assert.equal(alice.p2p.known.of(field.url).link.way, "node");
  field.close();
});

test("nobody has a channel of the field in the name of another", async () => {
  const [alice, bob] = await net.connected();
  const mallory = new Field();
  mallory.invite(bob.p2p.handler, alice.url);
  await net.turn();
  await net.turn(15_100);
  assert.notEqual(mallory.channel.readyState, "open");
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
  assert.deepEqual(bob.states, ["created", "in-progress", "live"]);
  assert.equal(bob.bus.counters["p2p.not-handled"], 1);
  mallory.close();
});

test("the field is refused where the options say so", async () => {
  const [bob, field] = [net.talker({ fieldPeers: false }), new Field()];
  const { answer } = await field.announce(field.requester, bob.p2p.handler);
  await assert.rejects(answer, { code: 501 });
  field.close();
  assert.equal(bob.p2p.known.size, 0);
});

test("P48 P46 the field speaks for its own runtime alone, and in frames", async () => {
  const [alice, field] = await together("handler");
  for (let n = 0; n < 9; n += 1) field.say(alice.app, n, { from: "runtime://d/77/app" });
  for (const hostile of [
    "",
    "{",
    "[]",
    '{"uuid":"x","data":"piece"}',
    new ArrayBuffer(0),
    new ArrayBuffer(30),
  ])
    field.channel.send(hostile);
  field.say(alice.app, 9);
  await net.turn();
  assert.deepEqual(alice.got, [9]);
  field.say(alice.app, 10, { from: "runtime://d/77/app" });
  await net.turn();
  assert.equal(alice.p2p.known.of(field.url).link.way, "node");
  assert.equal(alice.bus.counters["p2p.forged"], 10);
  field.close();
});

test("P45 contents of bytes arrive equal by channel, and are refused without one", async () => {
  const [alice, bob] = [net.talker(), net.talker()];
  for (const { p2p } of [alice, bob]) p2p.start();
  const got = [];
  bob.bus.addListener(`${bob.url}/files`, ({ body }) => got.push(body.value));
  const bytes = (size) => Uint8Array.from({ length: size }, (_, index) => index % 251).buffer;
  const message = (content) => ({
    type: "create",
    from: alice.app,
    to: `${bob.url}/files`,
    body: { value: { mimetype: "image/png", content } },
  });
  const refused = alice.bus.request(message(bytes(9))).catch((error) => error);
  assert.equal((await net.asked(refused)).code, 503);
  await net.asked(alice.want(bob));
  const sizes = [0, 1, 16_384, 16_385, 40_000];
  for (const size of sizes) {
    alice.bus.postMessage(message(bytes(size)));
    alice.tell(bob, size);
  }
  alice.bus.postMessage(message(new Uint8Array(bytes(9)).subarray(2, 5)));
  await net.turn(100);
  assert.deepEqual(
    got.map(({ content }) => new Uint8Array(content)),
    [...sizes.map((size) => new Uint8Array(bytes(size))), Uint8Array.of(2, 3, 4)],
  );
  assert.deepEqual(bob.got, [-1, ...sizes]);
  assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
});
