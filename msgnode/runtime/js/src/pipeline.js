/**
 * A pipeline of the MessageBUS: handlers that each message passes, such as identity and policy.
 *
 *   handler(message, {direction: "in" | "out", via}) -> the message or nothing     it goes on as it is
 *                                                       {type, from, to, …}         it goes on as this
 *                                                       {code, desc}                it is refused
 *                                                       a promise of one of these
 *
 * A handler that throws refuses with 500, one that takes longer than 10 s with 503.
 */

import { limited, systemClock } from "./clock.js";

const HANDLER_TIME = 10_000; // ms

export class Pipeline {
  #handlers = [];

  constructor(direction, { clock = systemClock, handlerTime = HANDLER_TIME } = {}) {
    this.direction = direction;
    this.clock = clock;
    this.handlerTime = handlerTime;
  }

  get isEmpty() {
    return this.#handlers.length === 0;
  }

  /** Add a handler at the end. */
  use(handler) {
    this.#handlers.push(handler);
    return { remove: () => (this.#handlers = this.#handlers.filter((each) => each !== handler)) };
  }

  /** What becomes of a message: it or another, a refusal, or a promise of one, which never rejects. */
  run(message, via) {
    return this.#from(0, this.#handlers, message, { direction: this.direction, via });
  }

  #from(index, handlers, message, context) {
    for (let at = index; at < handlers.length; at += 1) {
      let result;
      try {
        result = handlers[at](message, context);
      } catch (error) {
        return failed(error);
      }
      if (typeof result?.then === "function") {
        const late = () =>
          Object.assign(new Error("A handler of the pipeline did not answer in time."), {
            code: 503,
          });
        return limited(result, this.handlerTime, late, this.clock).then(
          (value) =>
            isRefusal(value) ? value : this.#from(at + 1, handlers, value || message, context),
          failed,
        );
      }
      if (isRefusal(result)) return result;
      message = result || message;
    }
    return message;
  }
}

/** Whether a handler's result refuses the message. */
export function isRefusal(result) {
  return Boolean(result) && result.type === undefined && result.code !== undefined;
}

function failed(error) {
  return { code: error.code === 503 ? 503 : 500, desc: error.message, error };
}
