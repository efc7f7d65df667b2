/**
 * Contents of messages that arrive behind them on a channel, and are put into them again. Pure.
 *
 * Rules
 * - The first frame says how much is to come: bytes, or UTF-16 units of a text. What is empty, too much, of
 *   the other kind or of a transfer that never began is a bad frame.
 * - Who waits for an answer with such a content is told of its progress (183), as it grows.
 */

import { answerTo, errorBody } from "../messages.js";
import { BadFrame, withContent } from "./frames.js";

const MAX_TRANSFERS = 8; // at a time, on one channel
const PROGRESS = errorBody(183, "Message reception is progressing");

/** A content that arrives. */
export class Transfer {
  #begun;
  #pieces = [];
  #left;
  #percent = 0;

  /** @param begun the frame before it */
  constructor(begun) {
    this.#begun = begun;
    this.#left = begun.size;
  }

  /** Take a piece; whether it was the last one. Throws BadFrame. */
  add({ kind, piece }) {
    const size = kind === "bytes" ? piece.byteLength : piece.length;
    if (this.#pieces.length && typeof piece !== typeof this.#pieces[0])
      throw new BadFrame("A content is text or bytes, not both.");
    if (!size || size > this.#left)
      throw new BadFrame("A piece of a content is empty, or more than was to come.");
    this.#pieces.push(piece);
    this.#left -= size;
    return this.#left === 0;
  }

  /** A provisional answer to who waits for this one, when the percentage has grown; else null. */
  progress() {
    const { message, size } = this.#begun;
    const percent = Math.trunc((100 * (size - this.#left)) / size);
    if (message.type !== "response" || percent <= this.#percent) return null;
    this.#percent = percent;
    return answerTo(
      { ...message, from: message.to, to: message.from },
      { ...PROGRESS, value: percent },
    );
  }

  /** The message as it was sent. */
  message() {
    const [first] = this.#pieces;
    if (typeof first === "string") return withContent(this.#begun.message, this.#pieces.join(""));
    const whole = new Uint8Array(this.#begun.size);
    let at = 0;
    for (const piece of this.#pieces) {
      whole.set(new Uint8Array(piece), at);
      at += piece.byteLength;
    }
    return withContent(this.#begun.message, whole.buffer);
  }
}

/** The contents that arrive on one channel without numbers, several at a time. */
export class Transfers {
  #all = new Map(); // uuid -> Transfer

  /** A message whose content follows. Throws BadFrame. */
  begin(begun) {
    if (this.#all.has(begun.uuid) || this.#all.size >= MAX_TRANSFERS)
      throw new BadFrame("The content is under way, or too many are.");
    this.#all.set(begun.uuid, new Transfer(begun));
  }

  /** A piece. Returns what it makes: the message, progress, or null. Throws BadFrame. */
  add(frame) {
    const transfer = this.#all.get(frame.uuid);
    if (!transfer) throw new BadFrame("No content of this uuid is under way.");
    let isLast;
    try {
      isLast = transfer.add(frame);
    } catch (error) {
      this.#all.delete(frame.uuid);
      throw error;
    }
    if (!isLast) return transfer.progress();
    this.#all.delete(frame.uuid);
    return transfer.message();
  }
}
