/** The clock of the runtime, so that tests can turn one of their own. Times are in milliseconds. */

export const systemClock = Object.freeze({
  now: () => performance.now(),
  setTimeout: (call, milliseconds) => setTimeout(call, milliseconds),
  clearTimeout: (timer) => clearTimeout(timer),
});

/** A promise's outcome, or the rejection `error()` if it takes longer than `milliseconds`. */
export function limited(promise, milliseconds, error, clock = systemClock) {
  return new Promise((resolve, reject) => {
    const timer = clock.setTimeout(() => reject(error()), milliseconds);
    promise.then(resolve, reject).finally(() => clock.clearTimeout(timer));
  });
}

/** Milliseconds before a retry after `failures` failures: doubling from `least` to `most`. */
export function backOff(failures, least, most) {
  return Math.min(most, least * 2 ** Math.min(Math.max(0, failures - 1), 30));
}
