/**
 * The remote runtimes that a runtime knows: bounded in number and time. Pure.
 *
 * Rules
 * - One that was not used for a while is forgotten; one with a channel, a set-up, or messages that
 *   have not arrived, is not. Neither is one whose channel has just ended: what was asked on it is
 *   still answered, and the other side may still say how far it came.
 * - Where there are too many, the one that was unused longest goes. If none may go, nobody new is
 *   known: there is no channel then, and messages go through the node.
 * - Two tabs may share a runtime URL: each is an instance, has a handler and a connection of its own. What is for a
 *   hyperty goes to the tab whose handler its registration names; what names none goes to the one that came last, as
 *   at the node.
 * - A stub of the other side belongs to one runtime, which has so many of them at most as there are
 *   epochs that are remembered.
 */

import { plain } from "./states.js";

export class KnownPeers {
  #timers;
  #gone;
  #byRuntime = new Map();
  #byVia = new Map();
  #byStub = new Map();

  /** @param gone called with each peer that is forgotten */
  constructor(timers, gone) {
    this.#timers = timers;
    this.#gone = gone;
  }

  get size() {
    return this.#byRuntime.size;
  }

  /** Whether a channel is in use with any. */
  hasChannel() {
    for (const { isOnChannel } of this) if (isOnChannel) return true;
    return false;
  }

  [Symbol.iterator]() {
    return this.#byRuntime.values();
  }

  /** The peer of a runtime URL, in either spelling of its scheme; with a handler, the tab that has it. */
  of(runtime, handler = "") {
    const last = this.#byRuntime.get(plain(runtime));
    if (!last || !handler || ["", handler].includes(last.handler)) return last;
    return this.allOf(runtime).find((each) => each.handler === handler);
  }

  /** The peer to dial for a handler; undefined if its runtime is known by others, which are in use. */
  toDial(runtime, handler) {
    const known = this.of(runtime, handler);
    if (known) return known;
    const last = this.of(runtime);
    if (!last || !isBusy(last)) return last; // it has started again
    this.#setAside(last);
    return undefined;
  }

  /** The peer whose channel messages are marked so. */
  ofVia(via) {
    return this.#byVia.get(via);
  }

  /** The peer that has this stub. */
  ofStub(stub) {
    return this.#byStub.get(stub);
  }

  /** Know a peer from now on; false if there are too many that may not be forgotten. */
  add(peer, now) {
    if (this.size >= this.#timers.peers && !this.#makeRoom(now)) return false;
    this.#byRuntime.set(plain(peer.runtime), peer);
    this.#byVia.set(peer.via, peer);
    peer.usedAt = now;
    return true;
  }

  /**
   * The peer for an instance of a runtime: its own, or one whose channel has ended. Who talks with another
   * instance, or is being invited by it, is set aside for it. One that has not said which instance it is, is the one
   * that has its handler.
   */
  instance(runtime, instance, handler = "") {
    const key = plain(runtime);
    const known = this.#byRuntime.get(key);
    const isIt = (each) =>
      each.instance ? each.instance === instance : [each.handler, ""].includes(handler);
    if (!known || !instance || isIt(known)) return known;
    const all = this.allOf(runtime);
    const own = all.find((each) => each.instance === instance) ?? all.find(isIt);
    if (!own && !isBusy(known)) return known; // it has started again
    this.#setAside(known);
    if (own) {
      this.#byRuntime.delete(`${key}#${own.via}`);
      this.#byRuntime.set(key, own);
    }
    return own;
  }

  #setAside(peer) {
    const key = plain(peer.runtime);
    this.#byRuntime.delete(key);
    this.#byRuntime.set(`${key}#${peer.via}`, peer);
  }

  /** The peers of all instances of a runtime. */
  allOf(runtime) {
    return [...this].filter((each) => plain(each.runtime) === plain(runtime));
  }

  /** A peer's connection is signalled with this stub; false if it is another runtime's. */
  signals(peer, stub) {
    if ((this.#byStub.get(stub) ?? peer) !== peer) return false;
    this.#byStub.set(stub, peer);
    peer.stubs.delete(stub);
    peer.stubs.add(stub);
    if (peer.stubs.size > this.#timers.keepEpochs + 1) {
      const [oldest] = peer.stubs;
      peer.stubs.delete(oldest);
      this.#byStub.delete(oldest);
    }
    return true;
  }

  /** Forget who was not used for long. */
  forgetUnused(now) {
    for (const peer of [...this]) {
      if (now - peer.usedAt >= this.#timers.forget && this.#mayGo(peer, now)) this.#forget(peer);
    }
  }

  #makeRoom(now) {
    const mayGo = [...this].filter((each) => this.#mayGo(each, now));
    if (!mayGo.length) return false;
    this.#forget(mayGo.reduce((oldest, each) => (each.usedAt < oldest.usedAt ? each : oldest)));
    return true;
  }

  #mayGo(peer, now) {
    const isSettled = !peer.link.epoch || now - peer.usedAt >= this.#timers.linger;
    return isSettled && !peer.isNeeded();
  }

  #forget(peer) {
    const key = plain(peer.runtime);
    this.#byRuntime.delete(this.#byRuntime.get(key) === peer ? key : `${key}#${peer.via}`);
    this.#byVia.delete(peer.via);
    for (const stub of peer.stubs) this.#byStub.delete(stub);
    this.#gone(peer);
  }
}

function isBusy({ link, isOnChannel, handling, dialling }) {
  return link.isOpen || isOnChannel || Boolean(handling) || Boolean(dialling);
}
