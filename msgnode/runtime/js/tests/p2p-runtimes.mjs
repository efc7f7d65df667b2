/** Runtimes with direct connections, a node between them, and WebRTC that a test can break. */

import assert from "node:assert/strict";
import { MessageBus } from "../src/messagebus.js";
import { answerTo, errorBody, isAnswerable } from "../src/messages.js";
import { CatalogueStubs } from "../src/p2p/catalogue-stubs.js";
import { PeerToPeer } from "../src/p2p/peer-to-peer.js";
import * as stub from "../src/p2p/stub.js";
import { Resolver } from "../src/resolver.js";
import { Sandboxes } from "../src/sandbox/sandboxes.js";
import { FakeClock, settled } from "./fake-clock.mjs";

const SM = /^domain:\/\/msg-node\.[^/]+\/sm$/;

/** What a node does for direct connections: claims, the registry, and delivery in order. */
export class Net {
  clock = new FakeClock();
  talkers = [];
  claimed = new Map(); // address -> talker
  registered = {}; // url -> what the registry says
  seen = []; // every message that came
  frames = []; // and every frame
  isBlocked = false; // no channel ever opens
  onConnecting = () => {}; // told before one does
  onDescribing = () => {}; // and before a side describes itself
  /** What the node answers instead of delivering a message; a code. */
  refuses = () => 0;
  connections = new Map(); // id in an SDP -> FakeConnection
  channels = new Set();
  #askers = new Map(); // sender and id of a request -> talker: an answer is for who asked

  talker(options = {}) {
    const made = new Talker(this, this.talkers.length + 1, options);
    this.talkers.push(made);
    return made;
  }

  /** Runtimes that have announced their handlers. */
  async several(count) {
    const all = Array.from({ length: count }, () => this.talker());
    for (const { p2p } of all) p2p.start();
    await this.turn();
    return all;
  }

  received(talker, message) {
    if (talker.isGone) return;
    this.seen.push(message);
    const { to, type, body = {} } = message;
    const answer = (said) => talker.bring(answerTo(message, said));
    if (type !== "response") this.#askers.set(`${message.from}\n${message.id}`, talker);
    const code = this.refuses(message);
    if (code) {
      if (isAnswerable(message)) answer(errorBody(code, "The node refuses."));
    } else if (SM.test(to)) {
      for (const address of body.resources ?? body.subscribe) {
        if (type === "subscribe") this.claimed.set(address, talker);
        else this.claimed.delete(address);
      }
      answer({ code: 200 });
    } else if (to.startsWith("domain://registry.")) {
      const value = this.registered[body.resource];
      answer(value ? { code: 200, value } : errorBody(404, "There is no such entry."));
    } else {
      const asker = type === "response" ? this.#askers.get(`${to}\n${message.id}`) : undefined;
      const found =
        asker ??
        this.claimed.get(to) ??
        this.talkers.find(({ url, isGone }) => !isGone && to.startsWith(`${url}/`));
      if (found) found.bring(message);
      else if (isAnswerable(message)) answer(errorBody(404, `Nobody listens to ${to}.`));
    }
  }

  /** Every frame of the channels that there are vanishes, and nobody is told. */
  cut() {
    for (const channel of this.channels) channel.isCut = true;
    this.channels.clear();
  }

  async turn(milliseconds = 0) {
    await settled();
    await this.clock.turn(milliseconds);
    await settled();
  }

  /** What a request is answered, after a turn. */
  async asked(answer) {
    await this.turn();
    return answer;
  }

  /** Two runtimes whose channel is in use in both directions. */
  async connected(options, others = options) {
    const [alice, bob] = [this.talker(options), this.talker(others)];
    for (const { p2p } of [alice, bob]) p2p.start();
    await this.turn();
    assert.equal((await this.asked(alice.want(bob))).value.n, -1);
    assert.deepEqual([alice.wayTo(bob), bob.wayTo(alice)], ["channel", "channel"]);
    return [alice, bob];
  }

  /** All runtimes close, and nothing is left of them. */
  async end() {
    const closing = this.talkers.map(({ p2p }) => p2p?.close());
    await this.turn(5_000);
    await Promise.all(closing);
    assert.equal(this.connections.size, 0, "no connection is left");
    const left = [...this.claimed.keys()].filter((each) => each.startsWith("connection:"));
    assert.deepEqual(left, [], "no connection object is left");
    for (const { bus } of this.talkers) bus.close();
    assert.equal(this.clock.timers, 0, "no timer is left");
  }
}

const builtIn = (...given) => new PeerToPeer(...given);

export const DESCRIPTOR = JSON.stringify({
  cguid: "1",
  type: "PROTOSTUB",
  version: "1",
  objectName: "P2PStub",
  language: "JAVASCRIPT_ECMA6",
  constraints: { windowSandbox: true, webrtc: true },
  sourcePackage: { sourceCode: "export {};" },
});

/**
 * Direct connections by the catalogue's stubs, which run in the test's own realm.
 *
 * @param world {clock, document(url): what the catalogue has there, opened: gets {sandboxes, instances, urls}}
 */
export function newCatalogueStubs(
  resolver,
  options,
  { RTCPeerConnection },
  { clock, document = async () => DESCRIPTOR, opened = [] },
) {
  const { bus } = resolver;
  const core = {
    isLocal: (address) => bus.isLocal(address),
    count: (reason) => bus.report(reason, { isQuiet: true }),
  };
  const [instances, urls] = [[], []];
  const activate = (url, outer, config) => {
    const started = stub.activate(url, outer, { ...config, RTCPeerConnection, clock });
    instances.push(started.instance);
    urls.push(url);
    return started;
  };
  const sandboxes = new Sandboxes(core, {
    isOwn: () => true,
    loadOwn: async () => ({ activate }),
    clock,
  });
  opened.push({ sandboxes, instances, urls });
  const catalogue = { baseOf: () => "http://127.0.0.1", document };
  return new CatalogueStubs({ resolver, catalogue, sandboxes }, options, {
    platform: "browser",
    capabilities: ["webrtc"],
  });
}

/** A runtime with a hyperty that answers, and keeps what it is told. */
class Talker {
  errors = [];
  got = []; // numbers, in their order
  byChannel = 0;
  states = [];
  reasons = []; // of states, where one was given
  told = []; // codes of answers to what awaited none
  came = []; // requests that wait for a reply
  p2p = null;
  isGone = false; // without a word to anybody

  constructor(
    net,
    number,
    {
      hasP2P = true,
      timers,
      handlerId,
      fieldPeers,
      newP2P = builtIn,
      url = `runtime://d/${number}`,
    },
  ) {
    this.net = net;
    this.url = url;
    this.app = `${this.url}/app`;
    this.stub = `runtime://d/protostub/${number}`;
    this.bus = new MessageBus(this.url, { clock: net.clock });
    this.bus.onError((error) => this.errors.push(error));
    this.bus.addListener(this.stub, (message) => net.received(this, message));
    const entry = {
      isLoading: false,
      status: "live",
      maxFrame: Infinity,
      sent: () => {},
      url: this.stub,
    };
    const stubs = { ofURL: (found) => (found === this.stub ? entry : undefined), get: () => entry };
    this.resolver = new Resolver(this.bus, { loads: 0, expectLive: () => {} }, stubs, {
      homeDomain: "d",
      clock: net.clock,
    });
    this.bus.resolver = this.resolver;
    this.bus.addListener(`${this.url}/status`, ({ body }) => {
      if (!body.peer) return;
      this.states.push(body.value);
      if (body.desc) this.reasons.push(body.desc);
    });
    this.bus.addListener(this.app, (message) => this.heard(message));
    const RTCPeerConnection = class extends FakeConnection {
      constructor(configuration) {
        super(net, configuration);
      }
    };
    if (hasP2P)
      this.p2p = newP2P(this.resolver, { timers, handlerId, fieldPeers }, { RTCPeerConnection });
  }

  bring(message) {
    if (!this.isGone) this.bus.postFrom(this.stub, structuredClone(message));
  }

  heard({ id, type, from, to, body }) {
    if (type === "response") this.told.push(body.code);
    if (type === "response") return;
    if (/\/p2p(requester|handler)\//.test(body.via)) this.byChannel += 1;
    this.got.push(body.value.n);
    if (type !== "update")
      this.bus.postMessage({
        id,
        type: "response",
        from: to,
        to: from,
        body: { code: 200, value: { n: body.value.n }, cameBy: body.via },
      });
  }

  ask(other, n, named = {}) {
    return this.bus.request({
      type: "create",
      from: this.app,
      to: other.app,
      body: { value: { n }, ...named },
    });
  }

  tell(other, n) {
    this.bus.postMessage({ type: "update", from: this.app, to: other.app, body: { value: { n } } });
  }

  /** Have a channel set up by a message that wants one. */
  want(other, n = -1) {
    const p2pHandler = other.p2p?.handler ?? `${other.url}/p2phandler/none`;
    return this.ask(other, n, { p2p: true, p2pHandler });
  }

  peerOf(other) {
    return this.p2p.known.of(other.url);
  }

  wayTo(other) {
    return this.peerOf(other)?.link.way ?? "node";
  }
}

let connections = 0;

/** After what runs now, in order. */
const later = (call) =>
  Promise.resolve()
    .then(() => {})
    .then(call);

/** An RTCPeerConnection as far as it is used; both ends live in one process. */
export class FakeConnection {
  iceGatheringState = "new";
  connectionState = "new";
  localDescription = null;
  channel = null;
  candidates = [];
  #net;
  #type = "offer";

  constructor(net, configuration) {
    this.configuration = configuration;
    this.id = String((connections += 1));
    this.#net = net;
    net.connections.set(this.id, this);
  }

  createDataChannel(label, { protocol }) {
    this.channel = new FakeChannel(this.#net, label, protocol);
    return this.channel;
  }

  async setLocalDescription() {
    this.#net.onDescribing();
    this.localDescription = { type: this.#type, sdp: `v=0 ${this.id}` };
    this.iceGatheringState = "complete";
    this.onicecandidate?.({ candidate: null });
  }

  async addIceCandidate({ candidate, sdpMid, sdpMLineIndex }) {
    if (sdpMid === null && sdpMLineIndex === null)
      throw new TypeError("A candidate names its line.");
    if (!candidate.startsWith("candidate:")) throw new Error("This is no candidate.");
    this.candidates.push(candidate);
  }

  async setRemoteDescription({ type, sdp }) {
    const other = this.#net.connections.get(sdp.split(" ")[1]);
    if (!other) throw new Error("This is no SDP.");
    if (type === "offer") this.#type = "answer";
    else if (!this.#net.isBlocked) later(() => this.#connect(other));
  }

  #connect(other) {
    if (this.connectionState === "closed" || other.connectionState === "closed") return;
    other.channel = new FakeChannel(this.#net, this.channel.label, this.channel.protocol);
    this.channel.join(other.channel);
    this.#net.onConnecting();
    other.ondatachannel({ channel: other.channel });
    for (const { channel } of [other, this]) channel.onopen?.();
  }

  close() {
    if (this.connectionState === "closed") return;
    this.connectionState = "closed";
    this.#net.connections.delete(this.id);
    this.channel?.close();
  }
}

class FakeChannel {
  readyState = "connecting";
  bufferedAmount = 0;
  isCut = false;
  #net;
  #other = null;

  constructor(net, label, protocol) {
    this.#net = net;
    net.channels.add(this);
    Object.assign(this, { label, protocol });
  }

  join(other) {
    for (const [one, two] of [
      [this, other],
      [other, this],
    ]) {
      one.#other = two;
      one.readyState = "open";
    }
  }

  send(frame) {
    this.#net.frames.push(frame);
    if (!this.isCut)
      later(() => this.#other.readyState === "open" && this.#other.onmessage?.({ data: frame }));
  }

  close() {
    if (this.readyState !== "open") return;
    this.readyState = "closing";
    later(() => {
      this.readyState = "closed";
      this.onclose?.();
      if (!this.isCut) this.#other.#closedByOther();
    });
  }

  #closedByOther() {
    if (this.readyState !== "open") return;
    this.readyState = "closed";
    this.onclose?.();
  }
}

// --- what the steps of the shared cases do ------------------------------------------------------------

const HELD = {
  any: () => true,
  confirm: ({ body }) => body.method === "confirm",
  data: ({ body }) => body.value?.data !== undefined,
};
const REGISTRY = "domain://registry.d";

/** Runtimes with names, as p2p-cases.jsonl has them; "{alice}" is a runtime's URL, "{alice.handler}" its handler. */
class Scene {
  net = new Net();
  #named = {};
  #answers = [];
  #letIn = {};

  async play(steps) {
    for (const step of steps) {
      const [act, ...words] = this.#filled(step);
      try {
        await this[act](...words.map((word) => this.#named[word] ?? word));
      } catch (error) {
        error.message = `${JSON.stringify(step)}: ${error.message}`;
        throw error;
      }
    }
    await this.net.end();
  }

  #filled(value) {
    if (typeof value === "string")
      return value.replace(/\{(\w+)(\.handler)?\}/g, (_, name, isHandler) =>
        isHandler ? this.#named[name].p2p.handler : this.#named[name].url,
      );
    if (Array.isArray(value)) return value.map((each) => this.#filled(each));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [key, this.#filled(each)]),
    );
  }

  runtime(name, options) {
    this.#named[name] = this.net.talker(options);
    return this.#named[name].p2p?.start();
  }

  async runtimes(...names) {
    for (const name of names) this.runtime(name);
    await this.net.turn();
  }

  async connected(timers) {
    for (const name of ["alice", "bob"]) this.runtime(name, { timers });
    await this.net.turn();
    const { alice, bob } = this.#named;
    await this.want(alice, bob);
    this.way(alice, bob, "channel");
    this.way(bob, alice, "channel");
  }

  turn = (milliseconds = 0) => this.net.turn(milliseconds);
  cut = () => this.net.cut();
  blocked = (isBlocked) => (this.net.isBlocked = isBlocked);
  gone = (one, isGone) => (one.isGone = isGone);
  empty = (one) => ((one.got = []), (one.byChannel = 0));
  bye = (one, other, reason) => one.peerOf(other).bye(reason);

  mark() {
    this.net.seen.length = this.net.frames.length = 0;
  }

  break() {
    for (const { channel } of this.net.connections.values()) channel.close();
  }

  async stop(one) {
    const closing = one.p2p.close();
    await this.net.turn(5_000);
    await closing;
  }

  refuse(code, one) {
    const isRefused = ({ type, to }) => type === "create" && to === one.p2p.handler;
    this.net.refuses = (message) => (isRefused(message) ? code : 0);
  }

  /** No side can describe itself. */
  mute(isMute) {
    this.net.onDescribing = () => {
      if (isMute) throw new Error("no socket is left");
    };
  }

  /** Both are ordered to hang up at the moment when their channel opens. */
  forbidAtOpening(one, other) {
    this.net.onConnecting = () => {
      one.peerOf(other).forbid();
      other.peerOf(one).forbid();
    };
  }

  /** A runtime starts again, and knows nothing of its set-up. */
  async startAgain(one, other) {
    one.peerOf(other).dialling.cancel();
    await this.net.turn();
    one.peerOf(other).state = "";
  }

  /** What comes waits from the first message on that is such a one. */
  hold(one, what) {
    const [held, { bring }] = [[], one];
    one.bring = (message) =>
      held.length || HELD[what](message) ? held.push(message) : bring.call(one, message);
    this.#letIn[one.url] = () => {
      one.bring = bring;
      for (const message of held) one.bring(message);
    };
  }

  letIn(one) {
    this.#letIn[one.url]();
  }

  // --- what is said -------------------------------------------------------------------------------

  async want(one, other, n = -1) {
    assert.equal((await this.net.asked(one.want(other, n))).value.n, n);
    await this.net.turn();
  }

  wanting(one, other, n) {
    one.want(other, n).catch(() => {});
  }

  async ask(one, other, n, way, more) {
    this.#came(await this.net.asked(one.ask(other, n, more)), n, way);
  }

  #came({ value, cameBy }, n, way) {
    assert.equal(value.n, n);
    if (way) assert.equal(/p2prequester/.test(cameBy) ? "channel" : "node", way, cameBy);
  }

  tell(one, other, first, count) {
    for (let n = first; n < first + count; n += 1) one.tell(other, n);
  }

  async askAt(one, to, numbers, more = {}, way = "") {
    const ask = (n) =>
      one.bus.request({ type: "create", from: one.app, to, body: { value: { n }, ...more } });
    const answers = numbers.map(ask);
    await this.net.turn();
    for (const [index, answer] of answers.entries()) this.#came(await answer, numbers[index], way);
  }

  tellAt(one, to, n, more = {}, from = "app") {
    const body = { value: { n }, ...more };
    one.bus.postMessage({ type: "update", from: `${one.url}/${from}`, to, body });
    return this.net.turn();
  }

  asking(one, to, n, more = {}) {
    const answer = [];
    this.#answers.push(answer);
    one.bus
      .request({ type: "create", from: one.app, to, body: { value: { n }, ...more } })
      .then(({ value = null }) => answer.push(200, value))
      .catch(({ code }) => answer.push(code, null));
  }

  unasked(one) {
    one.came = [];
    this.#answers = [];
  }

  collects(one, address) {
    one.bus.addListener(address, (message) => one.came.push(message));
  }

  hears(one, address) {
    one.bus.addListener(address, (message) => one.heard(message));
  }

  reply(one, index, body) {
    const { id, from: to, to: from } = one.came[index];
    one.bus.postMessage({ id, type: "response", from, to, body });
  }

  /** The registry knows an address, without a handler if `how` is empty; the runtime hears what comes there. */
  register(url, one, how = { isTold: true }) {
    const { net } = this;
    net.claimed.set(url, one);
    const isTold = Object.keys(how).length > 0;
    if (!how.isUnknown)
      net.registered[url] = { runtime: one.url, ...(isTold && one.p2p.registration) };
    if (how.isSilent) this.collects(one, url);
    else if (!how.isHeard) this.hears(one, url);
  }

  /** The registry no longer knows an address. */
  unknown(url) {
    delete this.net.registered[url];
  }

  /** A hyperty of that address is in no registry. */
  unregistered(one, address) {
    one.bus.unregistered.add(address);
  }

  unregister(url, one) {
    one.bus.removeAllListenersOf(url);
  }

  /** Invite by hand, as often as there are codes, which are answered. */
  async invite(one, other, { source = "runtime://d/p2prequester/1", ...value }, ...codes) {
    const from = "connection://d/1/subscription";
    const to = typeof other === "string" ? other : other.p2p.handler;
    this.net.claimed.set(from, one);
    one.bus.addListener(from, () => {}); // which does not say what it is
    for (const code of codes.length ? codes : [0]) {
      const body = { source, value };
      const answer = one.bus.request({ type: "create", from, to, body }).catch((error) => error);
      const found = (await this.net.asked(answer)).code;
      if (code) assert.equal(found, code);
    }
    this.net.claimed.delete(from);
  }

  forge(one, other, senders) {
    for (const [n, from] of senders.entries()) {
      const body = { value: { n: 99 }, auth: true };
      one.peerOf(other).send({ id: `x${n}`, type: "create", from, to: other.app, body });
    }
  }

  /** The node orders to hang up. */
  order(one, from, about, at = "handler") {
    const to = at === "via" ? one.p2p.known.of(about).via : one.p2p.handler;
    const body = { method: "disconnect", params: [{ peer: about }] };
    one.bring({ id: from, type: "execute", from, to, body });
  }

  // --- what is to be ------------------------------------------------------------------------------

  way = (one, other, way) => assert.equal(one.wayTo(other), way);
  states = (one, expected) => assert.deepEqual(one.states, expected);
  last = (one, state) => assert.equal(one.states.at(-1), state);
  count = (one, state, n) => assert.equal(one.states.filter((each) => each === state).length, n);
  never = (one, state) => assert.ok(!one.states.includes(state));
  got = (one, expected) => assert.deepEqual(one.got, expected);
  gotNot = (one, n) => assert.ok(!one.got.includes(n));
  byChannel = (one, n) => assert.equal(one.byChannel, n);
  answers = (expected) => assert.deepEqual(this.#answers, expected);
  refusals = (one, n) => assert.deepEqual(one.told, Array(n).fill(503));
  seenNothing = () => assert.deepEqual(this.net.seen, []);
  seen = (type, least) => assert.ok(this.#seen(type).length >= least);
  lookups = (n) => assert.equal(this.#seen("read", REGISTRY).length, n);
  invited = (one, n) => assert.equal(this.#seen("create", one.p2p.handler).length, n);
  frames = (text, is) =>
    assert.equal(
      this.net.frames.some((each) => each.includes(text)),
      is,
    );
  noErrors = () =>
    assert.deepEqual(
      this.net.talkers.flatMap(({ errors }) => errors),
      [],
    );
  counter = (one, reason, n) => assert.equal(one.bus.counters[reason], n);
  known = (one, n) => assert.equal(one.p2p.known.size, n);
  open = (n) => assert.equal(this.net.connections.size, n);
  objects = (n) => assert.equal(this.#claimed("connection:").length, n);
  claims = (n) => assert.equal(this.#claimed("/p2prequester/").length, n);
  claimed = (address, one) => assert.equal(this.net.claimed.get(address), one);
  requester = (one, other, is) => assert.equal(one.peerOf(other).isRequester, is);
  redial = (one, other, is) => assert.equal(one.peerOf(other).hasRedial, is);

  explain(one, to, sender, way, why) {
    const told = one.p2p.explain(to, sender);
    assert.deepEqual([told.way, told.why.slice(0, why.length)], [way, why]);
  }

  channels(one, n) {
    assert.equal(one.p2p.connections.filter(({ way }) => way === "channel").length, n);
  }

  tries(one, least, most) {
    const { length } = this.#seen("create", one.p2p.handler);
    assert.ok(length >= least && length <= most, String(length));
  }

  async untilNode(one, other) {
    for (let tenths = 0; tenths < 200 && one.wayTo(other) !== "node"; tenths += 1)
      await this.net.turn(100);
  }

  #seen(type, to) {
    return this.net.seen.filter((each) => each.type === type && (!to || each.to === to));
  }

  #claimed(text) {
    return [...this.net.claimed.keys()].filter((each) => each.includes(text));
  }
}

/** Do what a case says. */
export const playRuntimes = ({ steps }) => new Scene().play(steps);
