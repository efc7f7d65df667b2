/**
 * What comes on a channel: numbered, put together from pieces, delivered in order. Pure.
 *
 * Rules
 * - A message counts as received when it was delivered, not when it came: what still waits for a check
 *   when the channel ends is sent again by the other side.
 * - A message that came before is dropped. One that skips others ends the channel, since a channel
 *   neither loses nor swaps: the other side has lost count.
 */

import { Transfer } from "./contents.js";
import { BadFrame, join } from "./frames.js";
import { Queue } from "./queue.js";

export class Incoming {
  received = 0; // the last message that was delivered here
  told = 0; // the last one that was acknowledged
  faults = 0;
  #take;
  #limit;
  #mostSize;
  #seen = 0;
  #inbox = new Queue(); // {seq, message, size}
  #size = 0; // of all of them
  #begunSize = 0; // of the one that is coming
  #pieces = [];
  #transfer = null; // {begun, transfer} of the message that comes next

  /**
   * @param take delivers a message; false if it cannot be decided yet
   * @param limits {inbox, inboxSize}: messages that may wait, and characters of them
   */
  constructor(take, { inbox, inboxSize }) {
    this.#take = take;
    this.#limit = inbox;
    this.#mostSize = inboxSize;
  }

  /** A new channel: numbers start again. */
  begin() {
    this.received = this.told = this.#seen = 0;
    this.drop();
  }

  /** Take nothing more of what came and was not delivered. */
  drop() {
    this.#inbox = new Queue();
    this.#pieces = [];
    this.#transfer = null;
    this.#size = this.#begunSize = 0;
  }

  /** Whether something came that is not delivered yet. */
  hasWaiting() {
    return this.#inbox.length > 0;
  }

  /** Take a frame of so many characters. Returns false if the channel has to end. Throws BadFrame. */
  add(frame, size) {
    if (this.#transfer) {
      this.faults += 1;
      return false; // a content comes in one go
    }
    if (frame.seq !== this.#seen + 1) {
      this.faults += 1;
      return frame.seq <= this.#seen;
    }
    if (frame.kind === "data") {
      this.#begunSize = size;
      return this.#arrived(frame.seq, frame.message);
    }
    if (frame.kind === "begun") {
      this.#begunSize = size + frame.size;
      this.#transfer = { begun: frame, transfer: new Transfer(frame) };
      return true;
    }
    if (frame.index !== this.#pieces.length) {
      this.faults += 1;
      return frame.index < this.#pieces.length;
    }
    this.#begunSize = frame.index ? this.#begunSize + size : size;
    this.#pieces.push(frame.text);
    if (this.#pieces.length < frame.count) return true;
    const pieces = this.#pieces;
    this.#pieces = [];
    return this.#arrived(frame.seq, join(pieces));
  }

  /** Take a piece of a content. Returns false if the channel has to end. Throws BadFrame. */
  addContent(frame) {
    if (this.#transfer?.begun.uuid !== frame.uuid)
      throw new BadFrame("No content of this uuid is under way.");
    const { begun, transfer } = this.#transfer;
    if (transfer.add(frame)) {
      this.#transfer = null;
      return this.#arrived(begun.seq, transfer.message());
    }
    const progress = transfer.progress();
    if (progress) this.#take(progress);
    return true;
  }

  /** Deliver what came, as far as it can be decided. */
  deliver() {
    const inbox = this.#inbox; // another one if delivering ends the channel
    while (inbox.length && inbox === this.#inbox) {
      const { seq, message, size } = inbox.first;
      if (!this.#take(message) || inbox !== this.#inbox) return;
      inbox.shift();
      this.#size -= size;
      this.received = seq;
    }
  }

  #arrived(seq, message) {
    this.#seen = seq;
    this.#pieces = [];
    this.#inbox.push({ seq, message, size: this.#begunSize });
    this.#size += this.#begunSize;
    return this.#inbox.length <= this.#limit && this.#size <= this.#mostSize; // more than may be under way
  }
}
