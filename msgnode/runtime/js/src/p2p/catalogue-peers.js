/**
 * Direct connections by the P2P stubs of the home domain's catalogue: which are loaded, and what they are handed.
 *
 * It takes the place of PeerToPeer on the bus. Rules
 * - The handler is loaded at log-in; a requester by the first message for a runtime that says `p2p: true`. Nobody waits
 *   for either: until a stub is there, messages go through the node.
 * - From then on everything for that runtime is handed to the stub, which keeps the order; what it hands back goes
 *   through the node. A runtime that dials us is answered by the handler, and no requester is loaded for it; one that
 *   was loaded, and has had no connection for a while, is unloaded.
 * - Whatever catalogue a registration names, the code is the home domain's: it says who speaks on a channel.
 * - A stub may say what is its own, of its connection objects, or from outside, and hand back what it was handed; the
 *   rest is refused as of any stub. What comes from outside loses a node's marks here, too, and an answer has to be one
 *   to what this stub was handed.
 * - A requester that was not used for a while is unloaded. A load that failed is tried again, ever later, and so is a
 *   handler whose sandbox died.
 */

import { parse, runtimeOf, stubFor } from "../addresses.js";
import { backOff } from "../clock.js";
import { MAX_SOURCE, checkDescriptor } from "../descriptor.js";
import { checkIntegrity, checkSignature } from "../digest.js";
import { LoadError } from "../errors.js";
import { newId } from "../ids.js";
import { taken, withoutMarks } from "../messages.js";
import { contentOf } from "./frames.js";
import { NO_BYTES, Whereabouts, isForNode, withoutBytes } from "./senders.js";
import { requesterStubOf, settingsOf } from "./settings.js";
import { keepNewest, plain, runtimeOfHandler, statusOf } from "./states.js";

const FOLDER = ".well-known/protocolstub";
const MAX_DESCRIPTOR = 2 * MAX_SOURCE; // bytes: the source is in it
const LEAST_RETRY = 30_000; // ms after a load that failed, doubling
const MOST_RETRY = 1_800_000;
const LEAST_RESTART = 1_000; // ms after the handler could not be loaded, or has died; doubling
const MOST_RESTART = 60_000;
const BUSY = new Set(["created", "in-progress", "live"]);

/** The direct connections of one runtime. It takes the resolver's place on the bus. */
export class CataloguePeers {
  isClosed = false;
  handler;
  #bus;
  #resolver;
  #catalogue;
  #sandboxes;
  #settings;
  #platform;
  #whereabouts;
  #listening;
  #stubs = new Map(); // url -> HandedStub
  #handed = new Map(); // what they may hand back
  #peers = new Map(); // runtime -> {runtime, stub, state, usedAt, lostAt, failures, retryAt}
  #restarts = 0; // of the handler
  #isSwept = false;
  #timers = new Set();

  /**
   * @param parts {resolver, catalogue, sandboxes}
   * @param options as for PeerToPeer
   * @param platform {platform, capabilities}: for what a descriptor asks for; {signers: domain to public keys}
   */
  constructor({ resolver, catalogue, sandboxes }, options, platform) {
    this.#resolver = resolver;
    this.#bus = resolver.bus;
    [this.#catalogue, this.#sandboxes, this.#platform] = [catalogue, sandboxes, platform];
    this.#settings = settingsOf(options);
    this.handler = `${this.#bus.runtimeURL}/p2phandler/${this.#settings.handlerId || newId()}`;
    this.#whereabouts = new Whereabouts(this.#bus);
    this.#listening = this.#whereabouts.tellOwn(this.registration);
    resolver.peers = this;
  }

  /** An entry for each other runtime that there is, or was lately, a connection with. */
  get connections() {
    const found = [...this.#peers.values()].filter(({ stub }) => stub);
    return found.map(({ runtime, stub, state }) => ({
      runtime,
      stub: stub.url,
      state,
      way: state === "live" ? "channel" : "node",
    }));
  }

  /** What the registrations of this runtime's hyperties and data objects say besides. */
  get registration() {
    return { p2pHandler: this.handler, p2pRequester: requesterStubOf(this.#resolver.homeDomain) };
  }

  /** Load the handler; called once the home stub is live. */
  async start() {
    if (this.#stubs.has(this.handler) || this.isClosed) return;
    if (!this.#isSwept) this.#sweep();
    try {
      await this.#load("p2p-handler", this.handler, this.handler, { isHandlerStub: true });
    } catch (error) {
      if (this.isClosed) return;
      this.#bus.report("p2p.not-announced", {
        error: new Error(`Nobody can invite this runtime: ${error.message}`),
      });
      this.#restart();
    }
  }

  /** Load the handler again, ever later. */
  #restart() {
    this.#restarts += 1;
    this.#later(backOff(this.#restarts, LEAST_RESTART, MOST_RESTART), () => this.start());
  }

  // --- which way ----------------------------------------------------------------------------------

  /** Which way a message from `sender` to an address would go, and why: {way, why}. */
  explain(address, sender) {
    const place = runtimeOf(address) || this.#whereabouts.placeOf(address, sender).runtime;
    const peer = this.#peers.get(plain(place));
    if (peer?.state === "live") return { way: "channel", why: `Its runtime is ${peer.runtime}.` };
    if (peer?.stub)
      return { way: "node", why: `The P2P stub ${peer.stub.url} is ${peer.state || "starting"}.` };
    return { way: "node", why: "No P2P stub was loaded for it: send a message with p2p: true." };
  }

  /** Which way a message goes; see `peers` of the Resolver. */
  route(message, via) {
    const way = this.#route(message, via);
    return way === undefined && contentOf(message) ? this.#refuseBytes(message, via) : way;
  }

  #route(message, via) {
    if (message.type === "response") return this.#stubs.get(via)?.takes(message);
    const peer = isForNode(message) ? undefined : this.#wanted(message);
    if (!peer?.stub || !canName(message) || !this.#isBehindFence(peer, message.to))
      return undefined;
    peer.usedAt = this.#bus.clock.now();
    peer.stub.takes(message);
    this.#bus.forward(peer.stub.url, { ...message, body: { ...message.body, peer: peer.runtime } });
    return null;
  }

  #refuseBytes(message, via) {
    if (message.type === "response") this.#byNode(withoutBytes(message), via);
    else this.#bus.refuse(message, 503, NO_BYTES);
    return null;
  }

  #byNode(message, via) {
    const node = this.#resolver.routeByNode(message, via);
    if (node !== undefined)
      this.#bus.forward(node, taken(message, message.id, this.#bus.maxMessage));
  }

  /** The peer that a message is for; one that wants a channel has a requester loaded. */
  #wanted(message) {
    const { to, from, body } = message;
    if (body?.p2p === true) {
      const { p2pHandler } = body;
      const isSaid = typeof p2pHandler === "string" && p2pHandler;
      if (isSaid)
        this.#whereabouts.say(from, to, { runtime: runtimeOfHandler(p2pHandler), p2pHandler });
      if (this.#whereabouts.of(to, from) === null)
        this.#whereabouts.ask(to, from, () => this.#dialFor(to, from));
      else this.#dialFor(to, from);
    }
    const place = runtimeOf(to) || this.#whereabouts.placeOf(to, from).runtime;
    const peer = this.#peers.get(plain(place));
    if (peer?.stub && !runtimeOf(to)) this.#whereabouts.renew(to, from);
    return peer;
  }

  /** Whether the node path of an address is that of the signalling, which the stub's fence takes. */
  #isBehindFence(peer, to) {
    const { homeDomain, names } = this.#resolver;
    const key = stubFor(to, homeDomain, names)?.key;
    return Boolean(key) && key === stubFor(peer.runtime, homeDomain, names)?.key;
  }

  #dialFor(address, sender) {
    const { p2pHandler, runtime: named } = this.#whereabouts.of(address, sender) ?? {};
    const runtime = typeof p2pHandler === "string" ? runtimeOfHandler(p2pHandler) : "";
    if (!runtime || (typeof named === "string" && plain(named) !== plain(runtime)) || this.isClosed)
      return;
    if (plain(runtime) === plain(this.#bus.runtimeURL)) return;
    let peer = this.#peers.get(plain(runtime));
    const now = this.#bus.clock.now();
    if (!peer) {
      peer = this.#known(runtime);
      if (!peer) return;
    } else if (peer.isLoading || now < peer.retryAt || (peer.stub && !this.#isLost(peer, now)))
      return;
    this.#loadRequester(peer, p2pHandler);
  }

  /** Whether the other side's connection has ended so long ago that nothing of it waits any more. */
  #isLost(peer, now) {
    return peer.stub.url === this.handler && this.#isSettled(peer, now);
  }

  #isSettled({ state, lostAt }, now) {
    return !BUSY.has(state) && now - lostAt > 2 * this.#settings.timers.resume;
  }

  #known(runtime) {
    if (this.#peers.size >= this.#settings.timers.peers) {
      this.#bus.report("p2p.too-many-peers", { isQuiet: true });
      return undefined;
    }
    const peer = {
      runtime,
      stub: null,
      state: "",
      usedAt: this.#bus.clock.now(),
      lostAt: 0,
      failures: 0,
      retryAt: 0,
      isLoading: false,
    };
    this.#peers.set(plain(runtime), peer);
    return peer;
  }

  // --- stubs --------------------------------------------------------------------------------------

  async #loadRequester(peer, p2pHandler) {
    const url = `runtime://${parse(peer.runtime).domain}/p2prequester/${newId()}`;
    const handlerURL = `${this.#bus.runtimeURL}/p2phandler/${newId()}`;
    peer.isLoading = true;
    try {
      const stub = await this.#load("p2p-requester", url, handlerURL, {
        p2pRequesterStub: true,
        remoteRuntimeURL: peer.runtime,
        p2pHandler,
        handlerURL,
      });
      peer.failures = 0;
      const isKnown = this.#peers.get(plain(peer.runtime)) === peer;
      if (isKnown && (!peer.stub || this.#isLost(peer, this.#bus.clock.now()))) peer.stub = stub;
      else this.#unload(stub); // they came to us meanwhile, or the sandbox of the stub before has died
    } catch (error) {
      peer.failures += 1;
      peer.retryAt = this.#bus.clock.now() + backOff(peer.failures, LEAST_RETRY, MOST_RETRY);
      this.#tell({ value: "failed", desc: error.message, resource: url, peer: peer.runtime });
      if (!(error instanceof LoadError)) this.#bus.report("p2p.failed", { error });
    } finally {
      peer.isLoading = false;
    }
  }

  /** Load a stub of the home domain's catalogue. Rejects with a LoadError. */
  async #load(name, url, handlerURL, chosen) {
    const { homeDomain: domain } = this.#resolver;
    const descriptorURL = `${this.#catalogue.baseOf(domain)}/${FOLDER}/${name}`;
    const descriptor = checkDescriptor(await this.#descriptor(descriptorURL), {
      ...this.#platform,
      domain,
      url: descriptorURL,
    });
    const sourceCode = descriptor.source ?? (await this.#catalogue.source(descriptor.sourceURL));
    if (descriptor.integrity) await checkIntegrity(sourceCode, descriptor.integrity);
    const signers = this.#platform.signers?.[domain];
    if (signers) await checkSignature(sourceCode, descriptor.signature, signers);
    const sandbox = await this.#sandboxes.openForPeers(domain);
    if (this.isClosed) {
      this.#sandboxes.release(sandbox);
      throw new LoadError(503, "The runtime closes.");
    }
    const stub = new HandedStub(this.#bus, { url, handlerURL, sandbox, handed: this.#handed });
    this.#stubs.set(url, stub);
    stub.onStatus = (body) => this.#told(stub, body);
    const { iceServers, relayOnly, fieldPeers, timers } = this.#settings;
    const given = {
      iceServers,
      iceTransportPolicy: relayOnly ? "relay" : "all",
      fieldPeers,
      timers,
      runtimeURL: this.#bus.runtimeURL,
    };
    try {
      await sandbox.create({
        url,
        kind: "stub",
        domain,
        sourceCode,
        config: {
          ...descriptor.configuration,
          ...given,
          ...chosen,
          script: `${descriptorURL}.ps.js`,
        },
        mayPost: (message) => stub.mayPost(message),
        onMessage: (message) => this.#posted(stub, message),
        onDeath: (reason) => this.#died(stub, reason),
      });
    } catch (error) {
      this.#forget(stub);
      this.#sandboxes.release(sandbox);
      throw error;
    }
    return stub;
  }

  async #descriptor(url) {
    const text = await this.#catalogue.document(url, MAX_DESCRIPTOR);
    if (text === undefined) throw new LoadError(404, `There is nothing at ${url}`);
    try {
      return JSON.parse(text);
    } catch {
      throw new LoadError(502, "descriptor: not JSON");
    }
  }

  #posted(stub, message) {
    if (stub.isOwn(message)) this.#bus.postMessage(message);
    else if (stub.handedBack(message)) {
      if (contentOf(message)) this.#refuseBytes(message);
      else this.#byNode(message);
    } else if (
      message.type.toLowerCase() === "response" &&
      !this.#bus.isExpected(message, stub.url)
    )
      this.#bus.unclaimed(message);
    else this.#bus.postFrom(stub.url, withoutMarks(message));
  }

  /** A stub says how its connection with a runtime is. */
  #told(stub, { value, resource, desc }) {
    const state = statusOf(value);
    if (!state || typeof resource !== "string") return;
    const peer = this.#peers.get(plain(resource)) ?? this.#known(resource);
    if (!peer) return;
    const now = this.#bus.clock.now();
    const isOurs =
      peer.stub && peer.stub !== stub && state === "created" && this.#isSettled(peer, now);
    if (stub.url === this.handler && (!peer.stub || isOurs)) {
      if (isOurs) this.#unload(peer.stub); // it did not come about: theirs may
      peer.stub = stub;
    }
    if (!peer.stub || peer.stub === stub) {
      peer.state = state;
      peer.usedAt = now;
      if (!BUSY.has(state)) peer.lostAt = peer.usedAt;
    }
    this.#tell({ value: state, ...(desc ? { desc } : {}), resource: stub.url, peer: peer.runtime });
  }

  #tell(body) {
    const { runtimeURL } = this.#bus;
    this.#bus.postMessage({ type: "update", from: runtimeURL, to: `${runtimeURL}/status`, body });
  }

  // --- life ---------------------------------------------------------------------------------------

  #later(milliseconds, call) {
    const timer = this.#bus.clock.setTimeout(() => {
      this.#timers.delete(timer);
      call();
    }, milliseconds);
    this.#timers.add(timer);
  }

  #sweep() {
    this.#isSwept = true;
    const before = this.#bus.clock.now() - this.#settings.timers.forget;
    for (const [key, { stub, state, usedAt, isLoading, retryAt }] of this.#peers) {
      if (isLoading || (stub && BUSY.has(state)) || Math.max(usedAt, retryAt) > before) continue;
      this.#peers.delete(key);
      if (stub && stub.url !== this.handler) this.#unload(stub);
    }
    this.#later(this.#settings.timers.forget / 4, () => this.#sweep());
  }

  async #unload(stub) {
    await stub.sandbox.delete(stub.url).catch(() => {});
    this.#forget(stub);
    this.#sandboxes.release(stub.sandbox);
  }

  #forget(stub) {
    stub.remove();
    this.#stubs.delete(stub.url);
  }

  #died(stub, reason) {
    this.#forget(stub);
    stub.refuseAll(reason);
    for (const [key, peer] of this.#peers) {
      if (peer.stub !== stub) continue;
      this.#peers.delete(key);
      if (peer.state !== "failed")
        this.#tell({ value: "disconnected", desc: reason, resource: stub.url, peer: peer.runtime });
    }
    if (stub.url === this.handler && !this.isClosed) this.#restart();
  }

  /** Leave every channel in good order, and end the stubs. */
  async close() {
    if (this.isClosed) return;
    this.isClosed = true;
    for (const timer of this.#timers) this.#bus.clock.clearTimeout(timer);
    this.#whereabouts.close();
    this.#listening.remove();
    await Promise.all([...this.#stubs.values()].map((stub) => this.#unload(stub)));
    this.#resolver.peers = null;
  }
}

/** Whether there is room for the receiver's runtime in a message. */
function canName({ body }) {
  return body === undefined || (typeof body === "object" && body !== null && !Array.isArray(body));
}

/** A P2P stub in its sandbox, as the core sees it: what it is handed, what it claims, what it may say. */

const NODE_SM = /^domain:\/\/msg-node\.[^/]+\/sm$/;
const MAX_CLAIMS = 1_000; // addresses of connection objects
export const MAX_HANDED = 50_000; // messages that the stubs of a runtime may hand back

export class HandedStub {
  /** Told what it says on its `/status`. */
  onStatus = () => {};
  #bus;
  #own; // addresses below the runtime that are its own
  #items;
  #claims = new Map(); // address -> listener
  #handed; // of messages, of all stubs -> their headers

  /** @param of {url, handlerURL: where it is asked below the runtime's URL, sandbox, handed: a map that the stubs share} */
  constructor(bus, { url, handlerURL, sandbox, handed = new Map() }) {
    [this.#bus, this.url, this.sandbox, this.#handed] = [bus, url, sandbox, handed];
    this.#own = new Set([url, handlerURL]);
    this.#items = [...this.#own].map((address) => this.#listen(address));
    this.#items.push(
      bus.addListener(
        `${url}/status`,
        ({ from, body }) => from === url && this.onStatus(body ?? {}),
      ),
    );
  }

  #listen(address) {
    return this.#bus.addListener(address, (message) => {
      if (!this.sandbox.post(this.url, message))
        this.#bus.refuse(message, 503, `${this.url} takes no more messages.`);
    });
  }

  /** Note a message that it is handed. Returns the stub's URL. */
  takes({ id, type, from, to }) {
    const header = { id, type, from, to };
    keepNewest(this.#handed, this.#keyOf(header), { header, stub: this.url }, MAX_HANDED);
    return this.url;
  }

  /** Whether it may say this, though it is from an address of the runtime's. */
  mayPost(message) {
    return this.#isOf(message) || this.#handed.has(this.#keyOf(message));
  }

  #isOf({ from }) {
    return this.#own.has(from) || this.#claims.has(from);
  }

  /** Whether it speaks for itself; what it claims at a node is delivered to it from now on. */
  isOwn(message) {
    if (!this.#isOf(message)) return false;
    if (NODE_SM.test(message.to)) this.#claimed(message);
    return true;
  }

  #claimed({ type, body }) {
    for (const address of [body?.resources, body?.subscribe].flat()) {
      if (typeof address !== "string" || !address.startsWith("connection:")) continue;
      if (type === "unsubscribe") {
        this.#claims.get(address)?.remove();
        this.#claims.delete(address);
      } else if (
        type === "subscribe" &&
        this.#claims.size < MAX_CLAIMS &&
        !this.#bus.isHeard(address)
      ) {
        this.#claims.set(address, this.#listen(address));
      }
    }
  }

  /** Whether it was handed this message; asked once. */
  handedBack(message) {
    return this.#handed.delete(this.#keyOf(message));
  }

  /** It has ended: who waits for an answer is told. */
  refuseAll(reason) {
    for (const [key, { header, stub }] of this.#handed) {
      if (stub !== this.url) continue;
      this.#handed.delete(key);
      if (header.type !== "response" && this.#bus.isAwaited(header))
        this.#bus.refuse(header, 503, `${this.url} ended: ${reason}`);
    }
  }

  #keyOf({ id, type, from, to }) {
    return `${this.url}\n${type}\n${from}\n${to}\n${id}`;
  }

  /** Nothing is delivered to it any more. */
  remove() {
    for (const item of [...this.#items, ...this.#claims.values()]) item.remove();
    this.#claims.clear();
  }
}
