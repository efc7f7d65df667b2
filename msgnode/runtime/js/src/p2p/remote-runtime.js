/** What a runtime has with one other: the state of their connection, its channel, its link. */

import { parse } from "../addresses.js";
import { newId } from "../ids.js";
import { FieldLink } from "./field-link.js";
import { Link } from "./link.js";
import { HANDLER, REQUESTER, Redials, after, keepNewest, plain } from "./states.js";

const MAX_WRAPS = 10_000; // requests that came on the channel and are not answered
const EVENTS = { idle: "idle", forbidden: "forbidden" };

/** One other runtime. It is the outlet of its link. */
export class Peer {
  /** The URL of our requester stub, which marks what came on the channel. */
  via;
  /** The stubs' URLs that the current connection is signalled between. */
  own = "";
  theirs = "";
  instance = ""; // which of the runtimes of this URL it is, if it has said so
  state = "";
  desc = ""; // why it is in that state, if anything is known
  isRequester = true;
  attempt = 0; // which set-up
  dialling = null; // the set-up that runs
  handling = null; // and the one that the other side has begun
  isLost = false; // its connection was, and is wanted again
  lostAt = 0;
  hasRedial = false; // which is planned
  isClaimed = false;
  listening = null; // for what comes to, or is sent through, `via`
  stubs = new Set(); // of theirs, newest last
  usedAt = 0;
  redials = new Redials();
  link;
  #owner;
  #clock;
  #timers;
  #wraps = new Map();
  #rtc = null;
  #isReplacing = false;
  #timer = null;
  #armedFor = 0;

  /**
   * @param owner {throughNode(peer, message), ask(peer, method, params), take(peer, message), refuse(message, code,
   *   text), isAwaited(message), tellStatus(peer, desc), lost(peer, event)}
   */
  constructor(owner, runtime, handler, { timers, clock, via = "" }) {
    this.runtime = runtime;
    this.handler = handler;
    this.via = via || `runtime://${parse(runtime).domain}/p2prequester/${newId()}`;
    this.#owner = owner;
    this.#clock = clock;
    this.#timers = timers;
    this.link = new Link(this, timers);
  }

  // --- state --------------------------------------------------------------------------------------

  /** A new connection is to be set up. */
  begin(isRequester, own, theirs) {
    [this.isRequester, this.own, this.theirs] = [isRequester, own, theirs];
    this.state = "";
    this.attempt += 1;
    this.enter("deployed");
  }

  /** Something happened to the connection. */
  enter(event, desc = "") {
    const state = after(this.isRequester ? REQUESTER : HANDLER, this.state, event);
    if (state === this.state) return;
    [this.state, this.desc] = [state, desc];
    if (state !== "ended") this.#owner.tellStatus(this, desc);
  }

  get isSettingUp() {
    return this.state === "created" || this.state === "in-progress";
  }

  /** Whether what is sent does not simply go through the node. */
  get isOnChannel() {
    return this.link.way !== "node";
  }

  /** Whether it must not be forgotten: something is under way, or about to be. */
  isNeeded() {
    const isBusy =
      this.isSettingUp || this.state === "live" || this.dialling !== null || this.hasRedial;
    return isBusy || this.link.isOpen || !this.link.isQuiet();
  }

  // --- the channel --------------------------------------------------------------------------------

  /** The channel of a connection is open; it replaces an older one. */
  opened(rtc, epoch, isField = false) {
    this.#rtc?.close();
    this.#rtc = rtc;
    rtc.onFrame = (frame) => this.#do((now) => this.link.frame(frame, now));
    rtc.onLow = () => this.#do((now) => this.link.pump(now));
    rtc.onClose = () => this.#do((now) => this.link.lost("closed", now));
    this.#isReplacing = true;
    if (isField !== this.link.isField) {
      this.link.abandon();
      this.link = new (isField ? FieldLink : Link)(this, this.#timers);
    }
    this.#do((now) => this.link.opened(epoch, now));
    this.#isReplacing = false;
    this.isLost = false;
    this.enter("opened");
  }

  /** Send a message in its turn. */
  send(message, size, isForNode = false) {
    this.#do((now) => this.link.send(message, size, now, isForNode));
  }

  /** Let nothing overtake what went to an address through the node while this was open; the field knows no fences. */
  fenceAgain(address) {
    if (!this.link.isField) this.#do((now) => this.link.fenceAgain(address, now));
  }

  /** Deliver what waited for a check. */
  proceed() {
    this.#do((now) => this.link.proceed(now));
  }

  /** The other stub has answered, or refused (null). */
  answered(method, params, received) {
    this.#do((now) => this.link.answered(method, params, received, now));
  }

  /** The other side asks through the node. */
  fenceAsked(epoch, k) {
    return this.link.fenceAsked(epoch, k);
  }

  resumeAsked(epoch, received, bye) {
    const got = this.link.resumeAsked(epoch, received, bye);
    this.#arm();
    return got;
  }

  /** Leave the channel in good order. */
  bye(reason) {
    this.#do((now) => this.link.bye(reason, now));
  }

  /** There must be no connection: end the set-up that runs, or the channel. */
  forbid() {
    for (const setUp of [this.dialling, this.handling]) setUp?.cancel();
    this.dialling = this.handling = null;
    this.attempt += 1; // a channel that opens at this moment is of none that runs
    this.isLost = false;
    if (this.state !== "live") this.enter("forbidden", "forbidden"); // else the end of the channel says so
    this.bye("forbidden");
  }

  /** The request came on the channel: the node does not expect the answer. */
  wrap(key) {
    keepNewest(this.#wraps, key, true, MAX_WRAPS);
  }

  /** Whether the node does not expect this answer; asked once. */
  unwrap(key) {
    return this.#wraps.delete(key);
  }

  #do(call) {
    this.usedAt = this.#clock.now();
    call(this.usedAt);
    this.#arm();
  }

  #arm() {
    const due = this.link.due();
    if (this.#timer !== null && due !== null && this.#armedFor <= due) return; // early does no harm
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
    if (due === null) return;
    this.#armedFor = due;
    const tick = () => {
      this.#timer = null;
      this.#do((now) => this.link.tick(now));
    };
    this.#timer = this.#clock.setTimeout(tick, Math.max(0, Math.ceil(due - this.#clock.now())));
  }

  /** Nothing happens any more. Resolves when the connection is closed. */
  stop() {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.dialling?.cancel();
    return this.#rtc?.close();
  }

  // --- outlet of the link -------------------------------------------------------------------------

  toChannel(frame) {
    this.#rtc?.send(frame);
  }

  hasRoom() {
    return this.#rtc?.hasRoom() ?? false;
  }

  toNode(message) {
    this.#owner.throughNode(this, message);
  }

  ask(method, params) {
    this.#owner.ask(this, method, params);
  }

  take(message) {
    return this.#owner.take(this, message);
  }

  refuse(message, code, text) {
    this.#owner.refuse(message, code, text);
  }

  isAwaited(message) {
    return this.#owner.isAwaited(message);
  }

  close(reason) {
    if (this.#isReplacing) return;
    this.#rtc?.close();
    this.#rtc = null;
    if (this.state !== "live") return;
    const event = EVENTS[reason] ?? "lost";
    this.enter(event, reason);
    this.#owner.lost(this, event);
  }
}

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
