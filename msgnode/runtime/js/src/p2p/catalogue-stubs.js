/**
 * Direct connections by the P2P stubs of the home domain's catalogue: which are loaded, and what they are handed.
 *
 * It takes the place of PeerToPeer on the bus, and follows docs/reference/p2p.md, rows 40-46. Rules besides
 * - The handler is loaded at log-in; a requester by the first message for a runtime that says `p2p: true`. Nobody waits
 *   for either: until a stub is there, messages go through the node.
 * - A runtime that dials us is answered by the handler, and no requester is loaded for it; one that was loaded, and has
 *   had no connection for a while, is unloaded. So is one that was not used for a while.
 * - Whatever catalogue a registration names, the code is the home domain's: it says who speaks on a channel.
 * - A stub may say what is its own, of its connection objects, or from outside, and hand back what it was handed; the
 *   rest is refused as of any stub. An answer has to be one to what this stub was handed.
 * - A load that failed is tried again, ever later, and so is a handler whose sandbox died.
 */

import { parse, runtimeOf } from "../addresses.js";
import { backOff } from "../clock.js";
import { MAX_SOURCE, checkDescriptor } from "../descriptor.js";
import { checkIntegrity } from "../digest.js";
import { checkSignature } from "../signature.js";
import { LoadError } from "../errors.js";
import { newId } from "../ids.js";
import { taken, withoutMarks } from "../messages.js";
import { contentOf } from "./frames.js";
import { NodePath, Whereabouts, isForNode, isUnregistered } from "./senders.js";
import { requesterStubOf, settingsOf } from "./settings.js";
import { keepNewest, plain, statusOf } from "./states.js";

const NODE_SM = /^domain:\/\/msg-node\.[^/]+\/sm$/;
const MAX_CLAIMS = 1_000; // addresses of connection objects
export const MAX_HANDED = 50_000; // messages that the stubs of a runtime may hand back
const FOLDER = ".well-known/protocolstub";
const MAX_DESCRIPTOR = 2 * MAX_SOURCE; // bytes: the source is in it
const LEAST_RETRY = 30_000; // ms after a load that failed, doubling
const MOST_RETRY = 1_800_000;
const LEAST_RESTART = 1_000; // ms after the handler could not be loaded, or has died; doubling
const MOST_RESTART = 60_000;
const BUSY = new Set(["created", "in-progress", "live"]);

/** A P2P stub in its sandbox, as the core sees it: what it is handed, what it claims, what it may say. */
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

/** The direct connections of one runtime. It takes the resolver's place on the bus. */
export class CatalogueStubs {
  isClosed = false;
  handler;
  #bus;
  #resolver;
  #catalogue;
  #sandboxes;
  #settings;
  #platform;
  #node;
  #whereabouts;
  #listening;
  #stubs = new Map(); // url -> HandedStub
  #handed = new Map(); // what they may hand back
  #remotes = new Map(); // runtime -> {runtime, stub, state, usedAt, lostAt, failures, retryAt}
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
    this.#node = new NodePath(resolver);
    this.#whereabouts = new Whereabouts(this.#bus);
    this.#listening = this.#whereabouts.tellOwn(this.registration);
    resolver.peers = this;
  }

  /** An entry for each other runtime that there is, or was lately, a connection with. */
  get connections() {
    const found = [...this.#remotes.values()].filter(({ stub }) => stub);
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
    const remote = this.#remotes.get(plain(place));
    if (remote?.state === "live")
      return { way: "channel", why: `Its runtime is ${remote.runtime}.` };
    if (remote?.stub)
      return {
        way: "node",
        why: `The P2P stub ${remote.stub.url} is ${remote.state || "starting"}.`,
      };
    return { way: "node", why: "No P2P stub was loaded for it: send a message with p2p: true." };
  }

  /** Which way a message goes; see `peers` of the Resolver. */
  route(message, via) {
    const way = this.#route(message, via);
    if (way !== undefined || !contentOf(message)) return way;
    this.#node.send(message, via);
    return null;
  }

  #route(message, via) {
    if (message.type === "response") return this.#stubs.get(via)?.takes(message);
    const isByNode = isForNode(message) || isUnregistered(message, this.#bus);
    const remote = isByNode ? undefined : this.#wanted(message);
    if (!remote?.stub || !canName(message) || !this.#node.isShared(message.to, remote.runtime))
      return undefined;
    remote.usedAt = this.#bus.clock.now();
    remote.stub.takes(message);
    this.#bus.forward(remote.stub.url, {
      ...message,
      body: { ...message.body, peer: remote.runtime },
    });
    return null;
  }

  /** The remote that a message is for; one that wants a channel has a requester loaded. */
  #wanted(message) {
    const { to, from, body } = message;
    if (body?.p2p === true) {
      const named = typeof body.p2pHandler === "string" ? body.p2pHandler : "";
      this.#whereabouts.toDial(to, from, named, (...place) => this.#dial(...place));
    }
    const place = runtimeOf(to) || this.#whereabouts.placeOf(to, from).runtime;
    const remote = this.#remotes.get(plain(place));
    if (remote?.stub && !runtimeOf(to)) this.#whereabouts.renew(to, from);
    return remote;
  }

  #dial(runtime, p2pHandler) {
    if (this.isClosed) return;
    const now = this.#bus.clock.now();
    const known = this.#remotes.get(plain(runtime));
    const isBusy =
      known &&
      (known.isLoading || now < known.retryAt || (known.stub && !this.#isLost(known, now)));
    const remote = isBusy ? undefined : (known ?? this.#known(runtime));
    if (remote) this.#loadRequester(remote, p2pHandler);
  }

  /** Whether the other side's connection has ended so long ago that nothing of it waits any more. */
  #isLost(remote, now) {
    return remote.stub.url === this.handler && this.#isSettled(remote, now);
  }

  #isSettled({ state, lostAt }, now) {
    return !BUSY.has(state) && now - lostAt > 2 * this.#settings.timers.resume;
  }

  #known(runtime) {
    if (this.#remotes.size >= this.#settings.timers.peers) {
      this.#bus.report("p2p.too-many-peers", { isQuiet: true });
      return undefined;
    }
    const remote = {
      runtime,
      stub: null,
      state: "",
      usedAt: this.#bus.clock.now(),
      lostAt: 0,
      failures: 0,
      retryAt: 0,
      isLoading: false,
    };
    this.#remotes.set(plain(runtime), remote);
    return remote;
  }

  // --- stubs --------------------------------------------------------------------------------------

  async #loadRequester(remote, p2pHandler) {
    const url = `runtime://${parse(remote.runtime).domain}/p2prequester/${newId()}`;
    const handlerURL = `${this.#bus.runtimeURL}/p2phandler/${newId()}`;
    remote.isLoading = true;
    try {
      const stub = await this.#load("p2p-requester", url, handlerURL, {
        p2pRequesterStub: true,
        remoteRuntimeURL: remote.runtime,
        p2pHandler,
        handlerURL,
      });
      remote.failures = 0;
      const isKnown = this.#remotes.get(plain(remote.runtime)) === remote;
      if (isKnown && (!remote.stub || this.#isLost(remote, this.#bus.clock.now())))
        remote.stub = stub;
      else this.#unload(stub); // they came to us meanwhile, or the sandbox of the stub before has died
    } catch (error) {
      remote.failures += 1;
      remote.retryAt = this.#bus.clock.now() + backOff(remote.failures, LEAST_RETRY, MOST_RETRY);
      this.#tell({ value: "failed", desc: error.message, resource: url, peer: remote.runtime });
      if (!(error instanceof LoadError)) this.#bus.report("p2p.failed", { error });
    } finally {
      remote.isLoading = false;
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
      const isPlain = !contentOf(message);
      this.#node.send(isPlain ? taken(message, message.id, this.#bus.maxMessage) : message);
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
    const remote = this.#remotes.get(plain(resource)) ?? this.#known(resource);
    if (!remote) return;
    const now = this.#bus.clock.now();
    const isOurs =
      remote.stub && remote.stub !== stub && state === "created" && this.#isSettled(remote, now);
    if (stub.url === this.handler && (!remote.stub || isOurs)) {
      if (isOurs) this.#unload(remote.stub); // it did not come about: theirs may
      remote.stub = stub;
    }
    if (!remote.stub || remote.stub === stub) {
      remote.state = state;
      remote.usedAt = now;
      if (!BUSY.has(state)) remote.lostAt = remote.usedAt;
    }
    this.#tell({
      value: state,
      ...(desc ? { desc } : {}),
      resource: stub.url,
      peer: remote.runtime,
    });
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
    for (const [key, { stub, state, usedAt, isLoading, retryAt }] of this.#remotes) {
      if (isLoading || (stub && BUSY.has(state)) || Math.max(usedAt, retryAt) > before) continue;
      this.#remotes.delete(key);
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
    for (const [key, remote] of this.#remotes) {
      if (remote.stub !== stub) continue;
      this.#remotes.delete(key);
      if (remote.state !== "failed")
        this.#tell({
          value: "disconnected",
          desc: reason,
          resource: stub.url,
          peer: remote.runtime,
        });
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
