/** A queue that gives its oldest item in constant time. */

export class Queue {
  #items = [];
  #first = 0;

  get length() {
    return this.#items.length - this.#first;
  }

  /** The oldest item; undefined if there is none. */
  get first() {
    return this.#items[this.#first];
  }

  push(...items) {
    this.#items.push(...items);
  }

  /** Take the oldest item out. */
  shift() {
    const item = this.#items[this.#first];
    if (this.#first === this.#items.length) return undefined;
    this.#items[this.#first] = undefined;
    this.#first += 1;
    if (this.#first * 2 > this.#items.length) {
      this.#items.splice(0, this.#first);
      this.#first = 0;
    }
    return item;
  }

  /** Take everything out, the oldest first. */
  takeAll() {
    const all = this.#items.slice(this.#first);
    [this.#items, this.#first] = [[], 0];
    return all;
  }
}
