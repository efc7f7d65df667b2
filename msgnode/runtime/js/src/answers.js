/**
 * Who waits for the answer to which request.
 *
 * Rules
 * - An answer belongs to the request with the same sender and the same text of the id. The two are kept
 *   apart, never joined to one text: ("a", 11) is not ("a1", 1).
 * - The time-out begins when the request is handed on. An answer below 200 begins it anew, ten times at
 *   most; one of 200 or above ends the wait.
 * - An answer that a stub brought is one only if the request went out through that stub, or if the home
 *   stub brought it from who was asked: many runtimes answer through the node of the asker's domain.
 * - All waits are equally long, so they end in the order in which they began: one timer serves all.
 */

import { systemClock } from "./clock.js";
import { codeOf, errorBody } from "./messages.js";

export const ANSWER_TIME = 15_000; // ms, as the field's runtimes wait
const RENEWALS = 10;

export class Answers {
  #waiting = new Map(); // sender -> text of the id -> wait
  #running = new Set(); // waits whose time runs, the earliest first
  #timer = null;
  #clock;
  #time;
  #call;
  #onFailure;

  /**
   * @param call called with a wait's callback and what it gets
   * @param options {clock, answerTime: ms, onFailure: called with each request that stays unanswered, and each answer
   *   that is an error}
   */
  constructor(call, { clock = systemClock, answerTime = ANSWER_TIME, onFailure = () => {} } = {}) {
    this.#call = call;
    this.#onFailure = onFailure;
    this.#clock = clock;
    this.#time = answerTime;
  }

  /** Wait for answers to `id` of `from`; without a `request` there is no time-out. */
  expect(from, id, onAnswer, request = null) {
    let own = this.#waiting.get(from);
    if (!own) this.#waiting.set(from, (own = new Map()));
    const key = String(id);
    const before = own.get(key);
    if (before) this.#running.delete(before);
    own.set(key, {
      from,
      key,
      id,
      onAnswer,
      request,
      until: 0,
      renewals: RENEWALS,
      stub: undefined,
      to: undefined,
    });
  }

  /** The request has been handed on: its time runs. */
  start(from, id) {
    const wait = this.#waiting.get(from)?.get(String(id));
    if (wait?.request && wait.until === 0) this.#run(wait);
  }

  /** A request goes out through a stub. */
  sentThrough(stub, { from, id, to }) {
    const wait = this.#waiting.size ? this.#waiting.get(from)?.get(String(id)) : undefined;
    if (wait) [wait.stub, wait.to] = [stub, to];
  }

  /** Whether somebody waits for answers to this. */
  isAwaited(from, id) {
    return Boolean(this.#waiting.get(from)?.has(String(id)));
  }

  /** Whether somebody waits for this answer, and his request went out through the stub `via`. */
  isExpected({ to, id }, via) {
    return this.#waiting.get(to)?.get(String(id))?.stub === via;
  }

  forget(from, id) {
    const wait = this.#waiting.get(from)?.get(String(id));
    if (wait) this.#end(wait);
  }

  /** Whether somebody waits for this answer; he gets it. `via` is the stub that brought it, if one did. */
  take(message, via, isHome = false) {
    if (this.#waiting.size === 0) return false;
    const wait = this.#waiting.get(message.to)?.get(String(message.id));
    if (!wait) return false;
    if (via !== undefined && via !== wait.stub && !(isHome && message.from === wait.to))
      return false;
    const code = codeOf(message.body);
    if (code >= 200) this.#answered(wait, code, message);
    else if (wait.until && wait.renewals > 0) {
      wait.renewals -= 1;
      this.#run(wait);
    }
    const isPlain = message.body?.code === code;
    const body = isPlain ? message.body : { ...message.body, code };
    this.#call(wait.onAnswer, isPlain ? message : Object.freeze({ ...message, body }));
    return true;
  }

  /** End all waits of a sender, each with this error. */
  endAllOf(from, code, text) {
    for (const wait of [...(this.#waiting.get(from)?.values() ?? [])])
      this.#fail(wait, errorBody(code, text));
  }

  /** End every wait. */
  close(code, text) {
    for (const from of [...this.#waiting.keys()]) this.endAllOf(from, code, text);
  }

  #run(wait) {
    this.#running.delete(wait);
    wait.until = this.#clock.now() + this.#time;
    this.#running.add(wait);
    if (this.#timer === null) this.#arm(this.#time);
  }

  #arm(milliseconds) {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer); // one that was told of its end has asked again
    this.#timer = this.#clock.setTimeout(() => this.#expire(), milliseconds);
  }

  #expire() {
    this.#timer = null;
    const now = this.#clock.now();
    for (const wait of this.#running) {
      if (wait.until > now) {
        this.#arm(Math.max(1, wait.until - now));
        return;
      }
      this.#onFailure(wait.request);
      this.#fail(wait, { ...errorBody(408, "Response timeout!"), value: wait.request });
    }
  }

  #fail(wait, body) {
    this.#end(wait);
    this.#call(wait.onAnswer, Object.freeze({ id: wait.id, type: "response", body }));
  }

  #answered(wait, code, message) {
    this.#end(wait);
    if (code >= 400) this.#onFailure(message);
  }

  #end(wait) {
    this.#running.delete(wait);
    const own = this.#waiting.get(wait.from);
    if (own?.get(wait.key) !== wait) return;
    own.delete(wait.key);
    if (own.size === 0) this.#waiting.delete(wait.from);
    if (this.#running.size === 0 && this.#timer !== null) {
      this.#clock.clearTimeout(this.#timer);
      this.#timer = null;
    }
  }
}
