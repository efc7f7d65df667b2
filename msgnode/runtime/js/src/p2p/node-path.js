/**
 * The way through the node, which nothing on a channel may overtake.
 *
 * A fence of the channel takes the way of the signalling, so only what is for the same node can be behind it. What went
 * to an address of which nobody knew that it is at a peer may still be on that way when that is known: then another
 * fence is needed. After TIME it has arrived.
 */

import { stubFor } from "../addresses.js";

const TIME = 60_000; // ms
const MOST = 1_000; // addresses that are remembered; of more than that, those sent to last

/** What one runtime sends through its node. */
export class NodePath {
  #resolver;
  #sentAt = new Map();

  constructor(resolver) {
    this.#resolver = resolver;
  }

  /** Whether what is sent to an address goes the way of the signalling to a peer. */
  isShared(to, signalling) {
    const { homeDomain, names } = this.#resolver;
    const key = stubFor(to, homeDomain, names)?.key;
    return Boolean(key) && key === stubFor(signalling, homeDomain, names)?.key;
  }

  /** A message went there through the node; `now` in milliseconds. */
  sent(to, now) {
    this.#sentAt.delete(to);
    this.#sentAt.set(to, now);
    if (this.#sentAt.size > MOST) this.#sentAt.delete(this.#sentAt.keys().next().value);
  }

  /** Whether one may still be on the way there; only the first who asks is told so. */
  take(to, now) {
    const at = this.#sentAt.get(to);
    this.#sentAt.delete(to);
    return at !== undefined && now - at < TIME;
  }
}
