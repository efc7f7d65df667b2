/**
 * Follows the numbered changes of an object: each is applied once, in order, and none is missed unnoticed.
 *
 * | number of a change, n being the last applied | |
 * |---|---|
 * | n + 1          | applied, and what was held behind it |
 * | n or less      | dropped; if it was made later than the last one, the reporter began anew: read |
 * | more than n + 1 | held; after 2 s, or with 100 held, the object is read |
 * | none           | applied as it comes |
 *
 * A change that names another incarnation of the object than its value did is dropped, and the object is read: who
 * created it anew under the same address counts from the start, and his clock may be behind.
 *
 * What comes before the first value, or while the object is being read, is held, too. A read that fails is
 * tried again after 1 s, doubling to 60 s; successful ones are a second apart at least, whatever is sent.
 */

import { backOff } from "../clock.js";

const GAP_TIME = 2_000;
const READ_EVERY = 1_000;
const LEAST_RETRY = 1_000;
const MOST_RETRY = 60_000;
const MAX_HELD = 100;

export class Follower {
  /** Of the last change that was applied; null: not known. */
  version = null;
  #parts;
  #clock;
  #held = new Map(); // number -> change
  #isReading = true; // until start()
  #isReadAgain = false;
  #isStopped = false;
  #timer = null;
  #readAt = -Infinity;
  #failures = 0;
  #reads = 0;
  #lastModified = "";
  #incarnation = null; // of the value

  /**
   * @param parts {apply(change): throws if it does not fit, read(): promise of the object's value,
   *   adopt(value), failed(error), count(reason)}
   */
  constructor(parts, clock) {
    this.#parts = parts;
    this.#clock = clock;
  }

  /** The first value is there. */
  start(value) {
    this.#adopt(value);
  }

  take(change) {
    const number = change.version === undefined ? change.childVersion : change.version;
    if (this.#isStopped) return;
    if (number === undefined) this.#apply(change);
    else if (!Number.isSafeInteger(number) || number < 0) this.#parts.count("data.malformed");
    else if (this.#isReading) this.#hold(number, change);
    else if (this.#isAnothers(change)) this.check();
    else if (this.version === null || number === this.version + 1) {
      this.version = number;
      this.#apply(change);
      this.#drain();
    } else if (number > this.version) {
      this.#hold(number, change);
      if (this.#held.size >= MAX_HELD) this.check();
      else this.#arm(GAP_TIME);
    } else {
      this.#parts.count("data.old");
      if (String(change.lastModified ?? "") > this.#lastModified && this.#lastModified)
        this.check();
    }
  }

  /** Read the object: something may have been missed. A read that runs may have been lost with a connection. */
  check() {
    if (this.#isStopped) return;
    const wait = this.#readAt + READ_EVERY - this.#clock.now();
    if (this.#reads === 0 && this.#isReading) this.#isReadAgain = true;
    else if (wait > 0) this.#arm(wait, true);
    else this.#read();
  }

  stop() {
    this.#isStopped = true;
    this.#held.clear();
    this.#disarm();
  }

  async #read() {
    this.#disarm();
    this.#isReading = true;
    const number = (this.#reads += 1);
    this.#held.clear(); // an honest reporter's answer contains what he sent before it
    this.#readAt = this.#clock.now();
    this.#parts.count("data.read");
    let value;
    try {
      value = await this.#parts.read();
    } catch (error) {
      if (number === this.#reads && this.#isReading) this.#failed(error);
      return;
    }
    if (this.#isStopped || !this.#isReading) return; // another read was answered
    try {
      this.#adopt(value);
      this.#failures = 0;
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error) {
    if (this.#isStopped) return;
    this.#isReading = false;
    this.#failures += 1;
    this.#arm(backOff(this.#failures, LEAST_RETRY, MOST_RETRY), true);
    this.#parts.failed(error);
  }

  #adopt(value) {
    this.#isReading = false;
    const { version, lastModified, incarnation } = value;
    this.version = Number.isSafeInteger(version) && version >= 0 ? version : null;
    this.#lastModified = typeof lastModified === "string" ? lastModified : "";
    this.#incarnation = typeof incarnation === "string" ? incarnation : null;
    this.#parts.adopt(value);
    const isReadAgain = this.#isReadAgain;
    this.#isReadAgain = false;
    this.#drain();
    if (isReadAgain) this.check();
  }

  #apply(change) {
    if (typeof change.lastModified === "string") this.#lastModified = change.lastModified;
    try {
      this.#parts.apply(change);
    } catch {
      this.#parts.count("data.misfit");
      this.check();
    }
  }

  #isAnothers({ incarnation }) {
    const isIt =
      incarnation !== undefined && this.#incarnation !== null && incarnation !== this.#incarnation;
    if (isIt) this.#parts.count("data.anew");
    return isIt;
  }

  #hold(number, change) {
    if (this.#held.size < MAX_HELD) {
      if (!this.#held.has(number)) this.#held.set(number, change);
    } else this.#isReadAgain = true;
  }

  /** Apply what was held and follows; forget what is older. */
  #drain() {
    if (this.#held.size) {
      if (this.version === null) this.version = Math.min(...this.#held.keys()) - 1;
      for (const [number, change] of this.#held) {
        const isAnothers = this.#isAnothers(change);
        if (isAnothers || number <= this.version) this.#held.delete(number);
        if (isAnothers) this.check();
      }
      for (let next = this.version + 1; this.#held.has(next) && !this.#isReading; next += 1) {
        const change = this.#held.get(next);
        this.#held.delete(next);
        this.version = next;
        this.#apply(change);
      }
    }
    if (this.#isReading) return;
    if (this.#held.size) this.#arm(GAP_TIME);
    else if (!this.#isReadDue) this.#disarm();
  }

  #isReadDue = false; // the timer that runs is for a read that is needed in any case

  #arm(milliseconds, isReadDue = false) {
    if (this.#timer !== null && !(isReadDue && !this.#isReadDue)) return;
    this.#disarm();
    this.#isReadDue = isReadDue;
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = null;
      this.#isReadDue = false;
      this.check();
    }, milliseconds);
  }

  #disarm() {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#isReadDue = false;
  }
}
