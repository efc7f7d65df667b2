/**
 * A runtime's direct connections: who is dialled, who is let in, and which way a message goes.
 *
 * It stands between the bus and the node's stubs, and follows docs/reference/p2p.md, rows 30-34.
 */

import { RUNTIME_SCHEMES, domainOf, parse, runtimeOf } from "../addresses.js";
import { limited } from "../clock.js";
import { newId } from "../ids.js";
import { contentOf } from "./frames.js";
import { KnownRuntimes, RemoteRuntime } from "./remote-runtime.js";
import { NodePath, Whereabouts, isForNode, isUnregistered, withoutPeer } from "./senders.js";
import { SetUps } from "./set-up.js";
import { requesterStubOf, settingsOf } from "./settings.js";
import { SetUpError, Signalling, askedOf, countOf, invitedBy } from "./signalling.js";

const CLOSE_TIME = 1_000; // ms in which what was sent may arrive before the channels are closed
const MAX_DELIVERING = 100; // answers from stub to stub that wait for it to be known whose they are

/** The direct connections of one runtime. It takes the resolver's place on the bus. */
export class PeerToPeer {
  handler;
  /** The other runtimes that are known. */
  known;
  #bus;
  #resolver;
  #settings;
  #node;
  #signalling;
  #whereabouts;
  #setUps;
  #listening;
  #delivering = 0;
  #sweep = null;
  #isClosed = false;

  /**
   * @param resolver the way through the node
   * @param options {iceServers, relayOnly, handlerId, reserve, timers}
   * @param platform {RTCPeerConnection, qos}
   */
  constructor(resolver, options, platform) {
    const { bus } = resolver;
    this.#resolver = resolver;
    this.#bus = bus;
    const settings = settingsOf(options);
    this.#settings = settings;
    this.handler = `${bus.runtimeURL}/p2phandler/${settings.handlerId || newId()}`;
    this.known = new KnownRuntimes(settings.timers);
    this.#node = new NodePath(resolver);
    this.#signalling = new Signalling(bus, this.handler, settings.timers.answer);
    this.#whereabouts = new Whereabouts(bus);
    const newRemote = (...named) => this.#newRemote(...named);
    const parts = { signalling: this.#signalling, known: this.known, newRemote, settings };
    this.#setUps = new SetUps(parts, platform);
    this.#listening = [
      bus.addListener(this.handler, (message) => this.#signalled(message)),
      this.#whereabouts.tellOwn(this.registration),
    ];
    resolver.peers = this;
  }

  /** An entry for each other runtime that there is, or was lately, a connection with. */
  get connections() {
    return [...this.known].map(({ runtime, stub, state, link: { way } }) => ({
      runtime,
      stub,
      state,
      way,
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
      await this.#signalling.ask("subscribe", `${runtime}/ua`, sm, { resources: [this.handler] });
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
    if (way !== undefined || !contentOf(message)) return way;
    this.#node.send(message, via);
    return null;
  }

  #route(message, via) {
    if (message.type === "response") {
      const back = via === undefined ? undefined : this.known.ofVia(via);
      if (back) return back.via;
      const remote = this.#remoteOf(message.to);
      if (!remote?.isOnChannel) return undefined;
      remote.send(message, true);
      return null;
    }
    if (isForNode(message) || isUnregistered(message, this.#bus)) return undefined;
    const { to } = message;
    const remote = this.#wanted(message);
    const now = this.#bus.clock.now();
    if (!remote && this.known.hasChannel()) this.#node.sent(to, now);
    if (!remote?.isOnChannel || !this.#node.isShared(to, remote.handler || remote.runtime))
      return undefined;
    if (this.#node.takeSent(to, now)) remote.fenceAgain(to);
    return remote.via;
  }

  /** Send what the bus has handed to the stub of a remote runtime. */
  send(remote, message) {
    if (message.type === "response") remote.answer(message);
    else remote.send(withoutPeer(message));
  }

  /** The remote runtime that a message is for; one that wants a channel has it dialled. */
  #wanted(message) {
    const { to, from, body } = message;
    const handler = typeof body?.p2pHandler === "string" ? body.p2pHandler : "";
    const remote = this.#remoteOf(to, from, handler);
    if (body?.p2p === true && !remote?.isOnChannel)
      this.#whereabouts.toDial(to, from, handler, (...place) => this.dial(...place));
    else if (!remote && this.known.wasDialledByField(domainOf(to)) && !runtimeOf(to))
      this.#whereabouts.renew(to, from); // it may be in that runtime
    return remote;
  }

  #remoteOf(address, sender, handler = "") {
    const parts = parse(address);
    if (!parts) return undefined;
    if (RUNTIME_SCHEMES.includes(parts.scheme))
      return this.known.of(
        runtimeOf(address),
        handler || this.#whereabouts.saidBy(sender, address),
      );
    const place = this.#whereabouts.placeOf(address, sender);
    const remote = this.known.of(place.runtime, handler || place.p2pHandler);
    if (remote?.isOnChannel) this.#whereabouts.renew(address, sender);
    return remote;
  }

  /** Set a connection up with a runtime, unless there is one, or it is no time for that. */
  dial(runtime, handler) {
    if (this.#isClosed) return null;
    const remote = this.known.toDial(runtime, handler) ?? this.#newRemote(runtime, handler);
    if (!remote) return null;
    remote.handler = handler;
    this.#setUps.dial(remote);
    return remote;
  }

  /** Which way a message from `sender` to an address would go, and why: {way, why}. */
  explain(address, sender) {
    const message = { to: address, from: sender };
    if (isForNode(message))
      return byNode("It is an event, signalling or for a back-end: always through the node.");
    if (isUnregistered(message, this.#bus))
      return byNode("The sender is not registered, so the other side cannot tell where it is.");
    const remote = this.#remoteOf(address, sender);
    if (remote?.link.way === "channel")
      return { way: "channel", why: `Its runtime is ${remote.runtime}.` };
    if (remote?.isOnChannel) return { way: remote.link.way, why: "The way changes over." };
    if (remote?.isSettingUp) return byNode("A channel is being set up.");
    if (remote?.desc) return byNode(`The last channel or set-up ended: ${remote.desc}`);
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
        this.#setUps.invited(message, invitedBy(message));
      else if (message.type === "create") {
        const invited = invitedBy(message);
        this.#setUps.announced(this.known.ofStub(invited.stub), message, invited);
      } else if (message.type === "execute") this.#asked(message);
      else throw new SetUpError(405, "A P2P stub takes create and execute.");
    } catch (error) {
      if (!(error instanceof SetUpError)) throw error;
      this.#signalling.answer(message, error.code, error.message);
    }
  }

  /** What stubs of others, or the node itself, ask of ours. Throws SetUpError. */
  #asked(message) {
    const { method, said } = askedOf(message);
    if (method === "confirm") this.#setUps.confirm(message, said);
    else if (method === "disconnect") this.#hangUp(message, said);
    else {
      const remote = this.known.ofStub(message.from);
      if (!remote) throw new SetUpError(410, "There is no connection with that stub.");
      this.#askedBy(remote, message, method, said);
    }
  }

  #askedBy(remote, message, method, said) {
    const epoch = String(said.epoch);
    if (method === "fence") {
      if (!remote.fenceAsked(epoch, countOf(said.k)))
        throw new SetUpError(410, "The epoch is unknown.");
      this.#signalling.answer(message, 200);
    } else if (method === "resume") {
      const received = remote.resumeAsked(epoch, countOf(said.received), said.bye);
      if (received === null) throw new SetUpError(410, "The epoch is unknown.");
      this.#signalling.answer(message, 200, "", { epoch, received });
    } else if (method === "deliver") {
      if (said.type !== "response")
        throw new SetUpError(403, "Only answers to what was asked are delivered so.");
      if (this.#delivering >= MAX_DELIVERING)
        throw new SetUpError(503, "Too many answers wait for a look-up of their senders.");
      this.#deliver(remote, message, said);
    } else
      throw new SetUpError(405, "A P2P stub knows confirm, deliver, disconnect, fence and resume.");
  }

  /** Take an answer in, as soon as it is known whose it is. */
  #deliver(remote, message, said) {
    const again = () => {
      this.#delivering -= 1;
      this.#deliver(remote, message, said);
    };
    if (remote.take(said, again)) this.#signalling.answer(message, 200);
    else this.#delivering += 1;
  }

  /** The node no longer vouches for a runtime; it expects no answer. */
  #hangUp({ from, to }, { peer: named }) {
    if (from !== `domain://msg-node.${domainOf(to)}/p2p`)
      throw new SetUpError(403, "The node alone orders to hang up.");
    for (const remote of typeof named === "string" ? this.known.allOf(named) : []) {
      if (to !== this.handler && to !== remote.via) continue;
      this.#bus.report("p2p.ordered-to-hang-up", { isQuiet: true });
      remote.forbid();
    }
  }

  // --- life ---------------------------------------------------------------------------------------

  /** A remote runtime that is known from now on; null if too many are. */
  #newRemote(runtime, handler) {
    const { timers, requesterURL } = this.#settings;
    const shared = {
      signalling: this.#signalling,
      node: this.#node,
      whereabouts: this.#whereabouts,
    };
    const remote = new RemoteRuntime({ ...shared, timers, requesterURL }, runtime, handler);
    if (!this.known.add(remote, this.#bus.clock.now())) {
      this.#bus.report("p2p.too-many-peers", { isQuiet: true });
      return null;
    }
    remote.onLost = () => this.#setUps.lost(remote);
    remote.listening = this.#bus.addListener(remote.via, (message) => {
      if (message.to === remote.via) this.#signalled(message);
      else this.send(remote, message);
    });
    this.#awaitSweep();
    return remote;
  }

  #awaitSweep() {
    if (this.#sweep !== null || !this.known.size || this.#isClosed) return;
    this.#sweep = this.#bus.clock.setTimeout(() => {
      this.#sweep = null;
      this.known.forgetUnused(this.#bus.clock.now());
      this.#awaitSweep();
    }, this.#settings.timers.forget / 4);
  }

  /** Leave every channel in good order. */
  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const { clock } = this.#bus;
    if (this.#sweep !== null) clock.clearTimeout(this.#sweep);
    this.#setUps.close();
    const end = clock.now() + CLOSE_TIME;
    while (![...this.known].every(({ link }) => link.isQuiet()) && clock.now() < end) {
      await new Promise((resolve) => clock.setTimeout(resolve, 20));
    }
    for (const remote of this.known) remote.bye("closing");
    this.#whereabouts.close();
    const closing = Promise.all([...this.known].map((remote) => remote.stop()));
    await limited(closing, 2 * CLOSE_TIME, () => new Error("late"), clock).catch(() => {});
    for (const remote of this.known) remote.listening.remove();
    for (const item of this.#listening) item.remove();
    this.#resolver.peers = null;
  }
}

function byNode(why) {
  return { way: "node", why };
}
