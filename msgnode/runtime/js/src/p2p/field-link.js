/**
 * The way of messages to a runtime whose stub is the field's: a channel without numbers. Pure.
 *
 *     node  ──channel opens──►  channel  ──lost──►  node
 *
 * It follows docs/reference/p2p.md, rows 9-11.
 */

import { BadFrame, Transfers, read, writePlain } from "./frames.js";
import { Inbox, MAX_FAULTS, SizedQueue } from "./link.js";
import { TIMERS } from "./settings.js";

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
  #frames = [];
  #unsure; // {at, message, size}
  #inbox;
  #transfers = new Transfers();
  #badInARow = 0;

  /** @param outlet that of a Link, and isAwaited(message) */
  constructor(outlet, timers = TIMERS) {
    this.#outlet = outlet;
    this.#timers = timers;
    this.#held = new SizedQueue(timers.heldSize);
    this.#unsure = new SizedQueue(timers.windowSize, timers.window);
    this.#inbox = new Inbox(outlet, timers);
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
    if (!this.#held.hasRoomFor({ size })) {
      this.#outlet.refuse(message, 503, "Too many messages wait for their way.");
      return;
    }
    this.#held.push({ message, size });
    this.pump(now);
  }

  /** Send what the channel has room for. */
  pump(now) {
    while (this.way === "channel") {
      while (this.#frames.length && this.#outlet.hasRoom())
        this.#outlet.toChannel(this.#frames.shift());
      if (this.#frames.length || !this.#held.length) return;
      const { message, size } = this.#held.shift();
      this.#sent += 1;
      this.#idleAt = now + this.#timers.idle;
      this.#frames.push(
        ...writePlain(`m${String(this.#sent % 10 ** 11).padStart(11, "0")}`, message),
      );
      this.#unsure.push({ at: now, message, size });
      this.#forgetBefore(now - UNSURE);
    }
  }

  /** What was sent so long ago, or before so much, has arrived or is not kept. */
  #forgetBefore(then) {
    const unsure = this.#unsure;
    while (unsure.length && (unsure.first.at < then || (unsure.isOverfull && unsure.length > 1)))
      unsure.shift();
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
    this.#inbox.clear();
    this.#frames = [];
    this.#transfers = new Transfers();
    this.#outlet.close(reason);
    this.#forgetBefore(unsureFrom);
    for (const { message } of this.#unsure.takeAll())
      this.#outlet.refuse(message, 503, "It may be lost: its channel has ended.");
    while (this.#held.length) this.#outlet.toNode(this.#held.shift().message);
  }

  // --- taking -------------------------------------------------------------------------------------

  /** A frame came on the channel. */
  frame(text, now) {
    if (!this.isOpen) return;
    let frame, message;
    try {
      frame = read(text);
      message = this.#read(frame, now);
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
    const content = frame.kind === "data" ? text : message.body.value?.content;
    const size = content?.byteLength ?? content?.length ?? 0;
    if (this.#inbox.add({ message, size })) this.proceed();
    else this.lost("closing", now);
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
    const isAsked = ({ message }) => message.from === to && String(message.id) === String(id);
    this.#unsure.dropThrough(isAsked);
  }

  /** Deliver what came, as far as it can be decided. */
  proceed() {
    this.#inbox.deliver();
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
