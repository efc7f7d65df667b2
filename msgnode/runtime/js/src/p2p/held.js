/** The messages that wait for their way: in order, and bounded in size. Pure. */

import { Queue } from "./queue.js";

export class Held {
  #mostSize;
  #items = new Queue(); // {message, size, ...}
  #size = 0;

  constructor(mostSize) {
    this.#mostSize = mostSize;
  }

  get length() {
    return this.#items.length;
  }

  /** The oldest one; undefined if there is none. */
  get first() {
    return this.#items.first;
  }

  /** Have a message wait; false if there is no room for it. */
  add(item) {
    if (this.#size + item.size > this.#mostSize) return false;
    this.#items.push(item);
    this.#size += item.size;
    return true;
  }

  /** The oldest one; it waits no longer. */
  take() {
    const item = this.#items.shift();
    this.#size -= item.size;
    return item;
  }
}
