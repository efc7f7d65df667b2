/** What was sent on a channel and is not acknowledged yet: bounded in number and size. Pure. */

import { Queue } from "./queue.js";

export class Window {
  #most;
  #mostSize;
  #items = new Queue(); // {message, size, seq}
  #size = 0;

  constructor(most, mostSize) {
    this.#most = most;
    this.#mostSize = mostSize;
  }

  get length() {
    return this.#items.length;
  }

  /** Whether there is no room for this one; an empty window has room for any. */
  isFull({ size }) {
    return this.length > 0 && (this.#size + size > this.#mostSize || this.length >= this.#most);
  }

  /** Keep a message that was sent. */
  add(item) {
    this.#items.push(item);
    this.#size += item.size;
  }

  /** Keep no longer what has arrived, up to this number; whether there was anything. */
  drop(upto) {
    let isAny = false;
    while (this.#items.length && this.#items.first.seq <= upto) {
      this.#size -= this.#items.shift().size;
      isAny = true;
    }
    return isAny;
  }

  /** Everything that is left; it is kept no longer. */
  take() {
    this.#size = 0;
    return this.#items.takeAll().map(({ message }) => message);
  }
}
