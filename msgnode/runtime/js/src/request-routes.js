/**
 * The stub that each of the latest requests came or went through, by its sender and id.
 *
 * There are two generations: when the newer one is full, the older is forgotten and the newer takes its
 * place. So at least half of `most` are remembered, and what is forgotten costs nothing. (A Map whose oldest
 * entry is deleted again and again looks through all that was deleted before.)
 */

export class RequestRoutes {
  #newer = new Map();
  #older = new Map();
  #half;

  /** @param most how many are remembered */
  constructor(most) {
    this.#half = most / 2;
  }

  /** Remember the route of a request. */
  keep({ from, id }, route) {
    if (this.#newer.size >= this.#half) {
      this.#older = this.#newer;
      this.#newer = new Map();
    }
    this.#newer.set(keyOf(from, id), route);
  }

  /** The route of the request that this is an answer to, undefined if none is remembered. */
  of({ to, id }) {
    const key = keyOf(to, id);
    return this.#newer.get(key) ?? this.#older.get(key);
  }

  /** Forget the route of the request that this is an answer to. */
  forget({ to, id }) {
    const key = keyOf(to, id);
    this.#newer.delete(key);
    this.#older.delete(key);
  }
}

function keyOf(address, id) {
  return `${address}\n${id}`;
}
