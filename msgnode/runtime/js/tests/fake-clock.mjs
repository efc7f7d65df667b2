/** A clock that tests turn, and a pause in which everything that was posted arrives. */

export class FakeClock {
  #now = 0;
  #timers = new Map();
  #ids = 0;

  now = () => this.#now;

  setTimeout = (call, milliseconds) => {
    const origin = new Error(`a timer of ${milliseconds} ms`).stack;
    this.#timers.set(++this.#ids, { call, at: this.#now + milliseconds, origin });
    return this.#ids;
  };

  clearTimeout = (timer) => this.#timers.delete(timer);

  /** Let time pass; everything that is due happens in its order, with a pause after each. */
  async turn(milliseconds) {
    const end = this.#now + milliseconds;
    for (;;) {
      const due = [...this.#timers]
        .filter(([, { at }]) => at <= end)
        .sort((a, b) => a[1].at - b[1].at)[0];
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

  /** Where each of the timers was set, as text. */
  get origins() {
    return [...this.#timers.values()].map(({ origin }) => origin);
  }
}

/** Everything that is queued now has happened. */
export function settled() {
  return new Promise((resolve) => setTimeout(resolve));
}
