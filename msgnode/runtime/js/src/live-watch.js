/**
 * How long a stub may take to be live, from when it has something to do.
 *
 * Rules
 * - Its time ends when it says that it is live, away or refused, when it brings something in, or when it
 *   is there no more.
 * - An identity proxy connects to nothing and is not waited for.
 */

export class LiveWatch {
  #timers = new Map(); // entry -> timer
  #time;
  #clock;
  #onLate;

  /** @param time ms, @param clock, @param onLate(entry) */
  constructor(time, clock, onLate) {
    [this.#time, this.#clock, this.#onLate] = [time, clock, onLate];
  }

  /** A stub has something to do. */
  expect(entry) {
    if (this.#timers.has(entry) || entry.kind === "idp" || !entry.isGettingLive) return;
    const late = () => {
      this.#timers.delete(entry);
      this.#onLate(entry);
    };
    this.#timers.set(entry, this.#clock.setTimeout(late, this.#time));
  }

  /** It is waited for no more. */
  forget(entry) {
    this.#clock.clearTimeout(this.#timers.get(entry));
    this.#timers.delete(entry);
  }

  close() {
    for (const entry of [...this.#timers.keys()]) this.forget(entry);
  }
}
