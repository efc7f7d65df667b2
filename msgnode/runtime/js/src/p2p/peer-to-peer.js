/**
 * A runtime's direct connections: who is dialled, who is let in, and which way a message goes.
 *
 * It stands between the bus and the node's stubs. Rules
 * - Nobody waits for a set-up: until a channel is in use, and after it, messages go through the node.
 * - A message that says `p2p: true` has its receiver's runtime dialled; what else goes to the same
 *   runtime uses the channel then. What has many readers, and all signalling, goes through the node.
 * - Where a receiver's runtime can be dialled its registration says; of an address below a runtime's URL that
 *   runtime itself, at `<runtime URL>/p2phandler`.
 * - An answer goes the way its request came. One that can do so no longer travels from stub to stub
 *   (`execute deliver`), because no node expects it.
 * - Of messages on a channel, `senders.js` tells whose they may be.
 * - Other runtimes are forgotten when they were not used for a while (`known-peers.js`).
 */

import { RUNTIME_SCHEMES, domainOf, parse, runtimeOf, stubFor } from "../addresses.js";
import { limited } from "../clock.js";
import { newId } from "../ids.js";
import { contentOf } from "./frames.js";
import { KnownPeers, Peer } from "./remote-runtime.js";
import {
  Arrivals,
  NO_BYTES,
  Whereabouts,
  isForNode,
  withoutBytes,
  withoutPeer,
} from "./senders.js";
import { Redialling, SetUps } from "./set-up.js";
import { requesterStubOf, settingsOf } from "./settings.js";
import { SetUpError, Talk, askedOf, countOf, invitedBy } from "./signalling.js";
import { plain, runtimeOfHandler } from "./states.js";

const CLOSE_TIME = 1_000; // ms in which what was sent may arrive before the channels are closed

/** The direct connections of one runtime. It takes the resolver's place on the bus. */
export class PeerToPeer {
  isClosed = false;
  known;
  handler;
  #bus;
  #resolver;
  #settings;
  #path;
  #talk;
  #whereabouts;
  #arrivals;
  #requests;
  setUps;
  #listening;
  #sweep = null;
  #redialling;

  /**
   * @param resolver the way through the node
   * @param options {iceServers, relayOnly, handlerId, reserve, timers}
   * @param platform {RTCPeerConnection, qos}
   */
  constructor(resolver, options, platform) {
    this.#resolver = resolver;
    this.#bus = resolver.bus;
    this.#settings = settingsOf(options);
    const { timers, handlerId } = this.#settings;
    this.handler = `${this.#bus.runtimeURL}/p2phandler/${handlerId || newId()}`;
    this.known = new KnownPeers(timers, (peer) => this.#forgotten(peer));
    this.#path = new NodePath(resolver);
    this.#talk = new Talk(this.#bus, this.handler, timers.answer);
    this.#whereabouts = new Whereabouts(this.#bus);
    this.#arrivals = new Arrivals(this.#bus, this.#whereabouts);
    this.setUps = new SetUps(this, this.#settings, this.#bus, this.#talk, platform);
    this.#redialling = new Redialling(this.#bus.clock, (peer) => this.#redial(peer));
    this.#requests = new StubRequests(this.#bus, {
      talk: this.#talk,
      known: this.known,
      setUps: this.setUps,
      arrivals: this.#arrivals,
    });
    this.#listening = [
      this.#bus.addListener(this.handler, (message) => this.#signalled(message)),
      this.#whereabouts.tellOwn(this.registration),
    ];
    resolver.peers = this;
  }

  /** An entry for each other runtime that there is, or was lately, a connection with. */
  get connections() {
    return [...this.known].map((peer) => ({
      runtime: peer.runtime,
      stub: this.#stubOf(peer),
      state: peer.state,
      way: peer.link.way,
    }));
  }

  /** What the registrations of this runtime's hyperties and data objects say besides. */
  get registration() {
    return { p2pHandler: this.handler, p2pRequester: requesterStubOf(this.#resolver.homeDomain) };
  }

  /** Have invitations delivered here; called once the home stub is live. */
  async start() {
    const runtime = this.#bus.runtimeURL;
    const sm = `domain://msg-node.${this.#resolver.homeDomain}/sm`;
    try {
      await this.#talk.ask("subscribe", `${runtime}/ua`, sm, { resources: [this.handler] });
    } catch (error) {
      this.#bus.report("p2p.not-announced", {
        error: new Error(`Nobody can invite this runtime: ${error.message}`),
      });
    }
  }

  // --- which way ----------------------------------------------------------------------------------

  /** Which way a message goes; see `peers` of the Resolver. */
  route(message, via) {
    const way = this.#route(message, via);
    return way === undefined && contentOf(message) ? this.#refuseBytes(message, via) : way;
  }

  #route(message, via) {
    if (message.type === "response") {
      const back = via === undefined ? undefined : this.known.ofVia(via);
      if (back) return back.via;
      const peer = this.#peerOf(message.to);
      if (!peer?.isOnChannel) return undefined;
      peer.send(message, sizeOf(message), true);
      return null;
    }
    if (isForNode(message)) return undefined;
    const { to } = message;
    const peer = this.#wanted(message);
    const now = this.#bus.clock.now();
    if (!peer && this.known.hasChannel()) this.#path.sent(to, now);
    if (!peer?.isOnChannel || !this.#path.isShared(to, peer.handler || peer.runtime))
      return undefined;
    if (this.#path.take(to, now)) peer.fenceAgain(to);
    return peer.via;
  }

  /** Send what the bus has handed to a peer's stub. */
  send(peer, message) {
    if (message.type === "response") peer.wrap(keyOf(message));
    peer.send(message.type === "response" ? message : withoutPeer(message), sizeOf(message));
  }

  /** The peer that a message is for; one that wants a channel has it dialled. */
  #wanted(message) {
    const { to, from, body } = message;
    const handler = typeof body?.p2pHandler === "string" ? body.p2pHandler : "";
    const peer = this.#peerOf(to, from, handler);
    if (body?.p2p === true && !peer?.isOnChannel) {
      if (handler)
        this.#whereabouts.say(from, to, {
          runtime: runtimeOfHandler(handler),
          p2pHandler: handler,
        });
      if (this.#whereabouts.of(to, from) === null)
        this.#whereabouts.ask(to, from, () => this.#dialFor(to, from));
      else this.#dialFor(to, from);
    }
    return peer;
  }

  #peerOf(address, sender, handler = "") {
    const parts = parse(address);
    if (!parts) return undefined;
    if (RUNTIME_SCHEMES.includes(parts.scheme))
      return this.known.of(
        runtimeOf(address),
        handler || this.#whereabouts.saidBy(sender, address),
      );
    const place = this.#whereabouts.placeOf(address, sender);
    const peer = this.known.of(place.runtime, handler || place.p2pHandler);
    if (peer?.isOnChannel) this.#whereabouts.renew(address, sender);
    return peer;
  }

  #dialFor(address, sender) {
    const { p2pHandler, runtime: named } = this.#whereabouts.of(address, sender) ?? {};
    const runtime = typeof p2pHandler === "string" ? runtimeOfHandler(p2pHandler) : "";
    if (!runtime || (typeof named === "string" && plain(named) !== plain(runtime)) || this.isClosed)
      return;
    if (plain(runtime) === plain(this.#bus.runtimeURL)) return;
    const peer = this.known.toDial(runtime, p2pHandler) ?? this.#newPeer(runtime, p2pHandler);
    if (!peer) return;
    peer.handler = p2pHandler;
    this.setUps.dial(peer);
  }

  /** Which way a message from `sender` to an address would go, and why: {way, why}. */
  explain(address, sender) {
    const message = { to: address, from: sender };
    if (isForNode(message))
      return byNode("It is an event, signalling or for a back-end: always through the node.");
    const peer = this.#peerOf(address, sender);
    if (peer?.link.way === "channel")
      return { way: "channel", why: `Its runtime is ${peer.runtime}.` };
    if (peer?.isOnChannel) return { way: peer.link.way, why: "The way changes over." };
    if (peer?.isSettingUp) return byNode("A channel is being set up.");
    if (peer?.desc) return byNode(`The last channel or set-up ended: ${peer.desc}`);
    const record = this.#whereabouts.of(address, sender);
    if (record === null)
      return byNode("Nobody has asked for a channel: send a message with p2p: true.");
    if (!record.p2pHandler)
      return byNode("Neither its registration nor its runtime names a P2P handler to dial.");
    return byNode("It has not been dialled lately: send a message with p2p: true.");
  }

  // --- signalling ---------------------------------------------------------------------------------

  /** What comes to our handler or to a requester of ours; all of it through the node. */
  #signalled(message) {
    const via = message.body?.via;
    if (message.type === "response" || via === undefined || this.known.ofVia(via)) return;
    try {
      if (message.type === "create" && message.to === this.handler)
        this.setUps.invited(message, invitedBy(message));
      else if (message.type === "create") {
        const invited = invitedBy(message);
        this.setUps.announced(this.known.ofStub(invited.stub), message, invited);
      } else if (message.type === "execute") this.#requests.take(message);
      else throw new SetUpError(405, "A P2P stub takes create and execute.");
    } catch (error) {
      if (!(error instanceof SetUpError)) throw error;
      this.#talk.answer(message, error.code, error.message);
    }
  }

  // --- what peers need of us ----------------------------------------------------------------------

  /** Send a message through the node, one that was meant for the channel as well. */
  throughNode(peer, message) {
    if (message.type === "response" && peer.unwrap(keyOf(message)) && !peer.link.isField) {
      const lost = ({ body }) =>
        body.code >= 300 && this.#bus.report("p2p.not-delivered", { message });
      const answer = contentOf(message) ? withoutBytes(message) : message;
      this.#bus.postMessage(
        {
          type: "execute",
          from: peer.own,
          to: peer.theirs,
          body: { method: "deliver", params: [answer] },
        },
        lost,
      );
      return;
    }
    if (contentOf(message)) {
      this.#refuseBytes(message);
      return;
    }
    const stub = this.#resolver.routeByNode(message);
    if (stub !== undefined) this.#bus.forward(stub, message);
  }

  #refuseBytes(message, via) {
    if (message.type !== "response") this.#bus.refuse(message, 503, NO_BYTES);
    else {
      const answer = withoutBytes(message);
      const stub = this.#resolver.routeByNode(answer, via);
      if (stub !== undefined) this.#bus.forward(stub, answer);
    }
    return null;
  }

  /** Whether somebody here waits for the answer to a message. */
  isAwaited(message) {
    return message.type !== "response" && this.#bus.isAwaited(message);
  }

  /** Ask the other side's stub through the node. */
  ask(peer, method, params) {
    const onAnswer = ({ body }) => {
      if (body.code >= 200)
        peer.answered(method, params, body.code === 200 ? countOf(body.value?.received) : null);
    };
    this.#bus.postMessage(
      { type: "execute", from: peer.own, to: peer.theirs, body: { method, params: [params] } },
      onAnswer,
    );
  }

  /** Take in what came from a peer; false if its sender has to be looked up first. */
  take(peer, message) {
    return this.#arrivals.take(peer, message);
  }

  /** Tell a sender that his message does not go out. */
  refuse(message, code, text) {
    this.#bus.refuse(message, code, text);
  }

  /** Tell the runtime of a change of the peer's state. */
  tellStatus(peer, desc) {
    const stub = this.#stubOf(peer);
    const runtime = this.#bus.runtimeURL;
    const said = { value: peer.state, ...(desc ? { desc } : {}) };
    this.#tell(stub, { ...said, resource: peer.runtime });
    this.#tell(runtime, { ...said, resource: stub, peer: peer.runtime });
  }

  #stubOf(peer) {
    return peer.isRequester ? peer.via : this.handler;
  }

  #tell(from, body) {
    const to = `${from}/status`;
    if (this.#bus.isHeard(to)) this.#bus.postMessage({ type: "update", from, to, body });
  }

  /** A live connection has ended. */
  lost(peer, event) {
    this.#redialling.lost(peer, event);
  }

  /** A set-up has failed, or is not begun: its runtime is left alone until then. */
  failed(peer, until, code) {
    this.#redialling.failed(peer, until, code);
  }

  /** Dial a lost one again, unless another tab would answer, which has taken over its handler. */
  #redial(peer) {
    const last = this.known.of(peer.runtime);
    if (last === peer || last?.handler !== peer.handler) this.setUps.dial(peer);
  }

  // --- what set-ups need of us --------------------------------------------------------------------

  /** The peer of a runtime, a new one if it is not known; null if there are too many. */
  peer(runtime, handler, instance = "") {
    return this.known.instance(runtime, instance, handler) ?? this.#newPeer(runtime, handler);
  }

  #newPeer(runtime, handler) {
    const { clock } = this.#bus;
    const peer = new Peer(this, runtime, handler, {
      timers: this.#settings.timers,
      clock,
      via: this.#settings.requesterURL,
    });
    if (!this.known.add(peer, clock.now())) {
      this.#bus.report("p2p.too-many-peers", { isQuiet: true });
      return null;
    }
    peer.listening = this.#bus.addListener(peer.via, (message) => {
      if (message.to === peer.via) this.#signalled(message);
      else this.send(peer, message);
    });
    this.#awaitSweep();
    return peer;
  }

  /** A peer's connection is signalled with this stub. Throws SetUpError. */
  signals(peer, stub) {
    if (!this.known.signals(peer, stub)) throw new SetUpError(403, `${stub} is another runtime's.`);
  }

  /** Have what is sent to a requester of ours delivered here. Rejects with a SetUpError. */
  async claim(peer) {
    if (peer.isClaimed) return;
    await this.#talk.claim([peer.via]);
    peer.isClaimed = true;
  }

  // --- life ---------------------------------------------------------------------------------------

  #awaitSweep() {
    if (this.#sweep !== null || !this.known.size || this.isClosed) return;
    this.#sweep = this.#bus.clock.setTimeout(() => {
      this.#sweep = null;
      this.known.forgetUnused(this.#bus.clock.now());
      this.#awaitSweep();
    }, this.#settings.timers.forget / 4);
  }

  #forgotten(peer) {
    peer.enter("forgotten");
    peer.stop();
    peer.listening.remove();
    if (peer.isClaimed) this.#talk.unclaim([peer.via]);
  }

  /** Leave every channel in good order. */
  async close() {
    if (this.isClosed) return;
    this.isClosed = true;
    const { clock } = this.#bus;
    if (this.#sweep !== null) clock.clearTimeout(this.#sweep);
    this.#redialling.close();
    const end = clock.now() + CLOSE_TIME;
    while (![...this.known].every(({ link }) => link.isQuiet()) && clock.now() < end) {
      await new Promise((resolve) => clock.setTimeout(resolve, 20));
    }
    for (const peer of this.known) peer.bye("closing");
    this.setUps.close();
    this.#whereabouts.close();
    const closing = Promise.all([...this.known].map((peer) => peer.stop()));
    await limited(closing, 2 * CLOSE_TIME, () => new Error("late"), clock).catch(() => {});
    for (const peer of this.known) peer.listening.remove();
    for (const item of this.#listening) item.remove();
    this.#resolver.peers = null;
  }
}

function byNode(why) {
  return { way: "node", why };
}

function sizeOf(message) {
  return JSON.stringify(message).length + (contentOf(message)?.byteLength ?? 0);
}

function keyOf({ to, id }) {
  return `${to}\n${id}`;
}

/**
 * The way through the node, which nothing on a channel may overtake.
 *
 * A fence of the channel takes the way of the signalling, so only what is for the same node can be behind it. What went
 * to an address of which nobody knew that it is at a peer may still be on that way when that is known: then another
 * fence is needed. After TIME it has arrived.
 */

const TIME = 60_000; // ms
const MOST = 1_000; // addresses that are remembered; of more than that, those sent to last

/** What one runtime sends through its node. */
export class NodePath {
  #resolver;
  #sentAt = new Map();

  constructor(resolver) {
    this.#resolver = resolver;
  }

  /** Whether what is sent to an address goes the way of the signalling to a peer. */
  isShared(to, signalling) {
    const { homeDomain, names } = this.#resolver;
    const key = stubFor(to, homeDomain, names)?.key;
    return Boolean(key) && key === stubFor(signalling, homeDomain, names)?.key;
  }

  /** A message went there through the node; `now` in milliseconds. */
  sent(to, now) {
    this.#sentAt.delete(to);
    this.#sentAt.set(to, now);
    if (this.#sentAt.size > MOST) this.#sentAt.delete(this.#sentAt.keys().next().value);
  }

  /** Whether one may still be on the way there; only the first who asks is told so. */
  take(to, now) {
    const at = this.#sentAt.get(to);
    this.#sentAt.delete(to);
    return at !== undefined && now - at < TIME;
  }
}

/** What is asked of our P2P stubs through the node, by the stubs of others and by the node itself. */

const MAX_DELIVERING = 100; // answers that wait for it to be known whose they are

/** Does what an `execute` asks: confirm, deliver, fence, resume; disconnect. */
export class StubRequests {
  #bus;
  #talk;
  #known;
  #setUps;
  #arrivals;
  #delivering = 0;

  constructor(bus, { talk, known, setUps, arrivals }) {
    [this.#bus, this.#talk, this.#known, this.#setUps, this.#arrivals] = [
      bus,
      talk,
      known,
      setUps,
      arrivals,
    ];
  }

  /** Do it, and answer. Throws SetUpError. */
  take(message) {
    const { method, said } = askedOf(message);
    if (method === "confirm") this.#setUps.confirm(message, said);
    else if (method === "disconnect") this.#hangUp(message, said);
    else {
      const peer = this.#known.ofStub(message.from);
      if (!peer) throw new SetUpError(410, "There is no connection with that stub.");
      this.#ofPeer(peer, message, method, said);
    }
  }

  #ofPeer(peer, message, method, said) {
    const epoch = String(said.epoch);
    if (method === "fence") {
      if (!peer.fenceAsked(epoch, countOf(said.k)))
        throw new SetUpError(410, "The epoch is unknown.");
      this.#talk.answer(message, 200);
    } else if (method === "resume") {
      const received = peer.resumeAsked(epoch, countOf(said.received), said.bye);
      if (received === null) throw new SetUpError(410, "The epoch is unknown.");
      this.#talk.answer(message, 200, "", { epoch, received });
    } else if (method === "deliver") {
      if (said.type !== "response")
        throw new SetUpError(403, "Only answers to what was asked are delivered so.");
      if (this.#delivering >= MAX_DELIVERING)
        throw new SetUpError(503, "Too many answers wait for a look-up of their senders.");
      this.#deliver(peer, message, said);
    } else
      throw new SetUpError(405, "A P2P stub knows confirm, deliver, disconnect, fence and resume.");
  }

  /** Take an answer in, as soon as it is known whose it is. */
  #deliver(peer, message, said) {
    const again = () => {
      this.#delivering -= 1;
      this.#deliver(peer, message, said);
    };
    if (this.#arrivals.take(peer, said, again)) this.#talk.answer(message, 200);
    else this.#delivering += 1;
  }

  /** The node no longer vouches for a peer; it expects no answer. */
  #hangUp({ from, to }, { peer: named }) {
    if (from !== `domain://msg-node.${domainOf(to)}/p2p`)
      throw new SetUpError(403, "The node alone orders to hang up.");
    for (const peer of typeof named === "string" ? this.#known.allOf(named) : []) {
      if (to !== this.#talk.handler && to !== peer.via) continue;
      this.#bus.report("p2p.ordered-to-hang-up", { isQuiet: true });
      peer.forbid();
    }
  }
}
