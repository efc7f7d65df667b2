/**
 * Dialling lost connections again.
 *
 * Rules
 * - Who had set a connection up dials again when it is lost; not when it ended because nobody used it, or nobody may.
 * - A try that fails is followed by the next when the other side need not be left alone any more, until there is a
 *   channel again, for ten minutes, and at most six times in these. After a refusal (403, 501) there is no other.
 * - A set-up that a message asked for, and that failed, is a later message's to ask for again.
 */

import { NO_RETURN } from "./states.js";

const FINAL = new Set([403, 501]);
const SETTLING = 100; // ms between two looks at what the last channel left

export class Redialling {
  #clock;
  #dial;
  #timers = new Set();
  #isClosed = false;

  /** @param dial(peer) sets a connection up, unless it is no time for one */
  constructor(clock, dial) {
    [this.#clock, this.#dial] = [clock, dial];
  }

  /** A live connection has ended. */
  lost(peer, event) {
    peer.isLost = peer.isRequester && !NO_RETURN.has(event);
    peer.lostAt = this.#clock.now();
    this.#plan(peer, 0);
  }

  /** A set-up has failed, or is not begun; its runtime is left alone until then. `code` is that of a refusal. */
  failed(peer, until, code) {
    if (FINAL.has(code)) peer.isLost = false;
    this.#plan(peer, until - this.#clock.now());
  }

  /** Dial no more. */
  close() {
    this.#isClosed = true;
    for (const timer of this.#timers) this.#clock.clearTimeout(timer);
    this.#timers.clear();
  }

  /** Plan the next try, which is not before `least` ms. */
  #plan(peer, least) {
    if (!peer.isLost || peer.hasRedial || this.#isClosed) return;
    const [now, jitter] = [this.#clock.now(), Math.random()];
    const next = peer.redials.next(now, jitter);
    const delay = Math.max(next, least && least + jitter * 1_000);
    if (next === null || now + delay - peer.lostAt > peer.redials.span) {
      peer.isLost = false;
      peer.enter("exhausted");
      return;
    }
    peer.hasRedial = true;
    this.#in(delay, peer);
  }

  #in(delay, peer) {
    const timer = this.#clock.setTimeout(() => {
      this.#timers.delete(timer);
      if (peer.isOnChannel && !peer.link.isOpen) {
        this.#in(SETTLING, peer); // what the last channel left is settled within the time of a resume
        return;
      }
      peer.hasRedial = false;
      if (peer.isLost) this.#dial(peer);
    }, delay);
    this.#timers.add(timer);
  }
}
