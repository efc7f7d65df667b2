/**
 * The P2P stubs of the catalogue, handler and requester: direct connections for a runtime that brings none of its own.
 *
 *   activate(stubURL, bus, config)                       as loaders before 2019 do
 *   new Stub()._start(stubURL, bus, config, factory)     where Stub is the default export
 *
 * The handler, `{isHandlerStub: true, runtimeURL}`, is invited by many; `body.peer` of what it is to send names the
 * runtime that it is for. The requester, `{p2pRequesterStub: true, runtimeURL, remoteRuntimeURL, p2pHandler,
 * handlerURL}`, dials one, at once. What the loader does: docs/reference/p2p.md, rows 40-46.
 */

import { domainOf, isBelow, isP2P } from "../addresses.js";
import { answerTo, codeOf, errorBody, isAnswerable } from "../messages.js";
import { MiniBus } from "../minibus.js";
import { PeerToPeer } from "./peer-to-peer.js";
import { isForNode, withoutPeer } from "./senders.js";
import { keepNewest } from "./states.js";

const NAME = "P2PStub";
const MAX_WAYS = 10_000; // requests that channels have brought and that are not answered

/** The bus that direct connections work with, on the one that the loader gives to a stub. */
class StubBus extends MiniBus {
  runtimeURL;
  #outer;
  #url;
  #own;
  #ways = new Map(); // sender and id of a request -> mark of the channel that brought it

  /** @param own the address below the runtime that the stub speaks as where the runtime would */
  constructor(outer, { url, own, runtimeURL, clock }) {
    super((message) => outer.postMessage(message), { clock });
    [this.#outer, this.#url, this.#own, this.runtimeURL] = [outer, url, own, runtimeURL];
    outer.addListener("*", (message) => this.receive(message));
  }

  postMessage(message, ...options) {
    const isRuntimes = isBelow(message.from, this.runtimeURL) && !isP2P(message.from);
    return super.postMessage(isRuntimes ? { ...message, from: this.#own } : message, ...options);
  }

  postFrom(via, message) {
    const id = message.id || this.newId();
    if (message.type !== "response") keepNewest(this.#ways, keyOf(message.from, id), via, MAX_WAYS);
    this.#outer.postMessage({ ...message, id, body: { ...message.body, via: this.#url } });
  }

  /** Post a message as the loader gave it, for the node. */
  handBack(message) {
    this.#outer.postMessage(message);
  }

  refuse(message, code, text) {
    if (isAnswerable(message)) this.#outer.postMessage(answerTo(message, errorBody(code, text)));
    else this.report("p2p.not-delivered", { message, isQuiet: true });
  }

  /** The mark of the channel whose request this answers, if one brought it. */
  wayBack({ to, id, body }) {
    const key = keyOf(to, id);
    const via = this.#ways.get(key);
    if (codeOf(body) >= 200) this.#ways.delete(key); // another follows a provisional one
    return via;
  }

  isHeard(address) {
    return address === `${this.#url}/status`;
  }

  /** The core knows what was asked, and drops any other answer. */
  isExpected() {
    return true;
  }

  /** The core knows who waits; of an update nobody does. */
  isAwaited({ type }) {
    return type !== "update";
  }
}

/** The handler or the requester, as the configuration says. */
export default class P2PStub {
  static activate = activate;
  #bus = null;
  #p2p = null;
  #remote = null; // {runtime, handler} of a requester

  get name() {
    return NAME;
  }

  _start(stubURL, bus, config, _factory) {
    const { runtimeURL, remoteRuntimeURL, p2pHandler, handlerURL } = config;
    const {
      iceServers,
      iceTransportPolicy,
      timers,
      fieldPeers,
      clock,
      RTCPeerConnection = globalThis.RTCPeerConnection,
    } = config;
    if (typeof RTCPeerConnection !== "function") throw new Error("there is no WebRTC here");
    const own = config.p2pRequesterStub ? handlerURL : stubURL;
    const handlerId = String(own).slice(`${runtimeURL}/p2phandler/`.length);
    if (!handlerId || own !== `${runtimeURL}/p2phandler/${handlerId}`)
      throw new Error(`${own} is no handler of ${runtimeURL}`);
    this.#bus = new StubBus(bus, { url: stubURL, own, runtimeURL, clock });
    const names = { interworking: new Set(), routing: {} };
    const resolver = {
      bus: this.#bus,
      homeDomain: domainOf(runtimeURL),
      names,
      routeByNode: (message) => this.#bus.handBack(message),
    };
    const requesterURL = config.p2pRequesterStub ? stubURL : "";
    const options = {
      iceServers,
      relayOnly: iceTransportPolicy === "relay",
      handlerId,
      requesterURL,
      timers,
      fieldPeers,
    };
    this.#p2p = new PeerToPeer(resolver, options, { RTCPeerConnection });
    this.#bus.addListener("*", (message) => this.#carry(message));
    if (config.p2pRequesterStub) {
      this.#remote = { runtime: remoteRuntimeURL, handler: p2pHandler };
      this.#dial();
    } else this.#p2p.start();
  }

  /** Leave every channel in good order. */
  async disconnect() {
    await this.#p2p.close();
    this.#bus.close();
  }

  /** The requester's one runtime; it is dialled unless there is a channel, or it is no time for that. */
  #dial() {
    return this.#p2p.dial(this.#remote.runtime, this.#remote.handler);
  }

  /** What the loader wants to have sent. */
  #carry(message) {
    if (message.type === "response") {
      const remote = this.#p2p.known.ofVia(this.#bus.wayBack(message));
      if (remote) this.#p2p.send(remote, message);
      else if (!isForNode(message)) this.#bus.handBack(message);
      return;
    }
    if (isForNode(message)) return; // it was for the stub itself
    const { p2p, peer: named } = message.body ?? {};
    const known = this.#p2p.known.of(this.#remote?.runtime ?? String(named));
    const remote = this.#remote && p2p === true ? this.#dial() : known;
    if (remote) this.#p2p.send(remote, message);
    else this.#bus.handBack(withoutPeer(message));
  }
}

/** The way of loading before 2019. */
export function activate(stubURL, bus, config) {
  const instance = new P2PStub();
  instance._start(stubURL, bus, config);
  return { name: NAME, instance };
}

function keyOf(sender, id) {
  return `${sender}\n${id}`;
}
