/** A clock that tests turn, and a pause in which everything that was posted arrives. */

export class FakeClock {
  #now = 0;
  #timers = new Map();
  #ids = 0;

  now = () => this.#now;

  setTimeout = (call, milliseconds) => {
    this.#timers.set(++this.#ids, { call, at: this.#now + milliseconds });
    return this.#ids;
  };

  clearTimeout = (timer) => this.#timers.delete(timer);

  /** Let time pass; everything that is due happens in its order, with a pause after each. */
  async turn(milliseconds) {
    const end = this.#now + milliseconds;
    for (;;) {
      const due = [...this.#timers].filter(([, { at }]) => at <= end).sort((a, b) => a[1].at - b[1].at)[0];
      if (!due) break;
      this.#timers.delete(due[0]);
      this.#now = Math.max(this.#now, due[1].at);
      due[1].call();
      await settled();
    }
    this.#now = end;
    await settled();
  }

  get timers() {
    return this.#timers.size;
  }
}

/** Everything that is queued now has happened. */
export function settled() {
  return new Promise((resolve) => setTimeout(resolve));
}
