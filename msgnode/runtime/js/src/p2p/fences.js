/**
 * The fences of one channel, so that nothing on it overtakes what is still at the node. Pure.
 *
 * Rules
 * - The first one is for all that went through the node before the channel was open. If it is not answered everything
 *   goes on through the node, and it is tried once more.
 * - Where the channel is in use, and messages went through the node to an address of which nobody knew that it is at
 *   the other side, another one is for that address. If it is not answered the address stays with the node as long as
 *   the channel is open.
 */

const TRIES = 2; // of the first one, for one channel

/** Their numbers, and what became of them. */
export class Fences {
  hasPassed = false;
  #number = 0;
  #failures = 0;
  #early = { epoch: "", k: 0 };
  #waiting = new Set(); // addresses
  #atNode = new Set();

  /** There is a new channel, with the first fence to come. */
  opened() {
    this.hasPassed = false;
    this.#failures = 0;
    this.#waiting.clear();
    this.#atNode.clear();
  }

  /** The number of a fence that takes the place of those before. */
  next() {
    return (this.#number += 1);
  }

  /** Whether it is the last one. */
  isCurrent(number) {
    return number === this.#number;
  }

  /** Another fence is for this address too; false if it stays with the node anyway. */
  add(address) {
    if (this.#atNode.has(address)) return false;
    this.#waiting.add(address);
    return true;
  }

  /** The last one was answered, behind all that went before it. */
  passed() {
    this.hasPassed = true;
    this.#waiting.clear();
  }

  /** The last one was not answered; whether the first is to be tried again. */
  failed() {
    if (this.hasPassed) for (const address of this.#waiting) this.#atNode.add(address);
    else this.#failures += 1;
    this.#waiting.clear();
    return this.#failures < TRIES;
  }

  /** Whether a message stays with the node, for the sake of those before it. */
  isAtNode({ to, type }) {
    return this.#atNode.has(to) && type !== "response";
  }

  /** One came through the node whose channel is not open here yet; true. */
  cameEarly(epoch, number) {
    this.#early = { epoch, k: number };
    return true;
  }

  /** The number of the one that came before this channel was open; null for none. */
  early(epoch) {
    return this.#early.epoch === epoch ? this.#early.k : null;
  }
}
