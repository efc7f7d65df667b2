/** What a runtime has with one other: the state of their connection, its channel, its link. */

import { parse } from "../addresses.js";
import { newId } from "../ids.js";
import { FieldLink } from "./field-link.js";
import { Link } from "./link.js";
import { HANDLER, REQUESTER, Redials, after, keepNewest } from "./states.js";

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
