/**
 * The way of messages to a runtime whose stub is the field's: a channel without numbers. Pure.
 *
 *     node  ──channel opens──►  channel  ──lost──►  node
 *
 * Rules
 * - Nothing tells what has arrived, so there is no fence and no resume: a message on the channel may overtake
 *   one that is still at the node, and what was sent shortly before the end may be lost. Who sent it is told so.
 * - The answer to a request says that all before it has arrived, because a channel keeps the order.
 * - Requests go through the node: the field answers there, and the node delivers no answer to what it was not
 *   asked. So does what is longer than a frame may be.
 */

import { BadFrame, Transfers, read, writePlain } from "./frames.js";
import { Held, Queue } from "./link.js";
import { TIMERS } from "./settings.js";

const MAX_FAULTS = 10; // frames in a row that cannot be read
const MAX_FRAME = 65_536; // characters: at most 256 KiB, which is what browsers take
const UNSURE = 30_000; // ms before the end of a channel in which what was sent may be lost

/** Both directions of one channel. */
export class FieldLink {
  isField = true;
  way = "node";
  epoch = "";
  isOpen = false;
  resent = 0;
  faults = 0;
  endedEpochs = 0;
  #outlet;
  #timers;
  #idleAt = null;
  #sent = 0;
  #held; // {message, size}
  #frames = new Queue();
  #unsure = []; // {at, message, size}
  #unsureSize = 0;
  #inbox = new Queue();
  #inboxSize = 0; // characters that came since something waits in it
  #transfers = new Transfers();
  #badInARow = 0;

  /** @param outlet that of a Link, and isAwaited(message) */
  constructor(outlet, timers = TIMERS) {
    this.#outlet = outlet;
    this.#timers = timers;
    this.#held = new Held(timers.heldSize);
  }

  /** Messages that may be lost if the channel ends now. */
  get unacknowledged() {
    return this.#unsure.length;
  }

  hasWaiting() {
    return this.#inbox.length > 0;
  }

  /** Whether nothing waits here. */
  isQuiet() {
    return !(this.#held.length || this.#frames.length || this.#inbox.length);
  }

  // --- sending ------------------------------------------------------------------------------------

  /** Send a message; see `send` of Link. */
  send(message, size, now, isForNode = false) {
    if (this.way === "node" || isForNode || size > MAX_FRAME || this.#outlet.isAwaited(message)) {
      this.#outlet.toNode(message);
      return;
    }
    if (this.#held.add({ message, size })) this.pump(now);
    else this.#outlet.refuse(message, 503, "Too many messages wait for their way.");
  }

  /** Send what the channel has room for. */
  pump(now) {
    while (this.way === "channel") {
      while (this.#frames.length && this.#outlet.hasRoom())
        this.#outlet.toChannel(this.#frames.shift());
      if (this.#frames.length || !this.#held.length) return;
      const { message, size } = this.#held.take();
      this.#sent += 1;
      this.#idleAt = now + this.#timers.idle;
      this.#frames.push(
        ...writePlain(`m${String(this.#sent % 10 ** 11).padStart(11, "0")}`, message),
      );
      this.#unsure.push({ at: now, message, size });
      this.#unsureSize += size;
      this.#forgetBefore(now - UNSURE);
    }
  }

  /** What was sent so long ago, or before so much, has arrived or is not kept. */
  #forgetBefore(then) {
    const all = this.#unsure;
    const { window, windowSize } = this.#timers;
    let [gone, size] = [0, this.#unsureSize];
    while (gone < all.length) {
      const left = all.length - gone;
      if (all[gone].at >= then && left <= window && !(size > windowSize && left > 1)) break;
      size -= all[gone].size;
      gone += 1;
    }
    if (gone) all.splice(0, gone);
    this.#unsureSize = size;
  }

  // --- the channel --------------------------------------------------------------------------------

  /** A channel is open. */
  opened(epoch, now) {
    this.abandon();
    [this.epoch, this.isOpen, this.way] = [epoch, true, "channel"];
    this.#badInARow = 0;
    this.#idleAt = now + this.#timers.idle;
  }

  /** Another channel comes. */
  abandon() {
    this.#end("closing", -Infinity);
  }

  /** Leave the channel: the field knows no frame that says so. */
  bye(reason, now) {
    this.lost(reason, now);
  }

  /** The channel is of no use any more. */
  lost(reason, now) {
    this.#end(reason, now - UNSURE);
  }

  #end(reason, unsureFrom) {
    if (!this.isOpen) return;
    [this.isOpen, this.way, this.#idleAt] = [false, "node", null];
    this.#inbox = new Queue();
    this.#inboxSize = 0;
    this.#frames.takeAll();
    this.#transfers = new Transfers();
    this.#outlet.close(reason);
    this.#forgetBefore(unsureFrom);
    const unsure = this.#unsure.splice(0);
    this.#unsureSize = 0;
    for (const { message } of unsure)
      this.#outlet.refuse(message, 503, "It may be lost: its channel has ended.");
    while (this.#held.length) this.#outlet.toNode(this.#held.take().message);
  }

  // --- taking -------------------------------------------------------------------------------------

  /** A frame came on the channel. */
  frame(text, now) {
    if (!this.isOpen) return;
    let message;
    if (this.#inbox.length) this.#inboxSize += text?.byteLength ?? text?.length ?? 0;
    try {
      message = this.#read(read(text), now);
      this.#badInARow = 0;
    } catch (error) {
      if (!(error instanceof BadFrame)) throw error;
      this.faults += 1;
      this.#badInARow += 1;
      if (this.#badInARow >= MAX_FAULTS) this.lost("closing", now);
      return;
    }
    if (!message) return;
    this.#idleAt = now + this.#timers.idle;
    this.#inbox.push(message);
    const { inbox, inboxSize } = this.#timers;
    if (this.#inbox.length > inbox || this.#inboxSize > inboxSize) this.lost("closing", now);
    else this.proceed();
  }

  #read(frame, now) {
    if (frame.kind === "data") {
      this.#arrivedBefore(frame.message);
      return frame.message;
    }
    if (frame.kind === "begun") this.#transfers.begin(frame);
    else if (frame.kind === "text" || frame.kind === "bytes") return this.#transfers.add(frame);
    else if (frame.kind === "bye") this.lost(frame.value, now);
    else if (frame.kind === "piece") throw new BadFrame("The frame is none of the field's.");
    return null;
  }

  /** An answer came: its request has arrived, and all that was sent before. */
  #arrivedBefore({ type, to, id }) {
    if (type !== "response") return;
    const index = this.#unsure.findIndex(
      ({ message }) => message.from === to && String(message.id) === String(id),
    );
    for (const { size } of this.#unsure.splice(0, index + 1)) this.#unsureSize -= size;
  }

  /** Deliver what came, as far as it can be decided. */
  proceed() {
    const inbox = this.#inbox; // another one if delivering ends the channel
    while (inbox.length && inbox === this.#inbox) {
      if (!this.#outlet.take(inbox.first) || inbox !== this.#inbox) return;
      inbox.shift();
    }
    this.#inboxSize = 0;
  }

  // --- what the field does not know ---------------------------------------------------------------

  fenceAsked() {
    return false;
  }

  resumeAsked() {
    return null;
  }

  answered() {}

  // --- time ---------------------------------------------------------------------------------------

  due() {
    return this.#idleAt;
  }

  tick(now) {
    if (this.#idleAt !== null && this.#idleAt <= now) this.bye("idle", now);
  }
}
