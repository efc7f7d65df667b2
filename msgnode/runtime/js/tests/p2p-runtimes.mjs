/** Runtimes with direct connections, a node between them, and WebRTC that a test can break. */

import assert from "node:assert/strict";
import { MessageBus } from "../src/messagebus.js";
import { answerTo, errorBody, isAnswerable } from "../src/messages.js";
import { CataloguePeers } from "../src/p2p/catalogue-peers.js";
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
export function newCataloguePeers(
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
  return new CataloguePeers({ resolver, catalogue, sandboxes }, options, {
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
