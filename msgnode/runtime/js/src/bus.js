/**
 * What both buses share: listeners, a queue, answers, and errors that stop nobody.
 *
 * Rules (their numbers stand in docs/reference/runtime.md)
 * - B1  A post never runs a listener inside the caller: it is queued, and the queue is emptied in order
 *       before the event loop goes on; after 10,000 deliveries other events get their turn first.
 * - B2  Each listener gets a message of its own.
 * - B3  A listener that throws is reported and stops neither the others nor the post.
 * - B4  Listeners are called as they stood when delivery began, but never one that was removed.
 */

import { Answers } from "./answers.js";
import { systemClock } from "./clock.js";
import { MAX_MESSAGE, codeOf, copyFor, taken } from "./messages.js";

const IN_A_ROW = 10_000; // deliveries before other events get their turn
const MAX_ERRORS = 20; // that are kept
const MAX_TEXT = 300; // characters of one
const NOBODY = Object.freeze([]);

/** What something says, whatever it is. */
function textOf(error) {
  try {
    return String(error?.message ?? error ?? "");
  } catch {
    return "";
  }
}

/** The final answer was an error. `code` and `body` are the answer's. */
export class AnswerError extends Error {
  constructor(body, to) {
    super(body?.desc ?? body?.description ?? `${to} answered ${codeOf(body)}.`);
    this.name = "AnswerError";
    this.code = codeOf(body);
    this.body = body;
  }
}

export class Bus {
  /** What was dropped or refused, by reason. */
  counters = {};
  /** The last of that, and of answers that are errors: {at, reason, text}. */
  errors;
  #listeners = new Map(); // url -> items, replaced and never changed
  #queue = [];
  #isDraining = false;
  #ids = Math.floor(Math.random() * 2 ** 40); // two tabs of one runtime URL do not use the same
  #errorListener = null;
  #endings = new Set();

  /** @param options {clock, answerTime: ms, maxMessage: bytes, errors: a list that buses of one runtime share} */
  constructor({ clock = systemClock, answerTime, maxMessage = MAX_MESSAGE, errors = [] } = {}) {
    this.errors = errors;
    this.clock = clock;
    this.maxMessage = maxMessage;
    this.answers = new Answers((onAnswer, message) => this.call(onAnswer, message), {
      clock,
      answerTime,
      onFailure: (message) => {
        const { type, body } = message;
        if (type === "response")
          this.#keep(`answer.${codeOf(body)}`, textOf(body?.desc ?? body?.description), message);
        else this.report("answers.timeout", { message, text: "No answer came.", isQuiet: true });
      },
    });
  }

  /** Call `listener` with every message to `url`; the item's remove() ends it. */
  addListener(url, listener) {
    if (typeof listener !== "function") throw new TypeError("listener is a function.");
    const item = { url, listener, isActive: true, remove: () => this.#remove(item) };
    this.#listeners.set(url, [...(this.#listeners.get(url) ?? []), item]);
    return item;
  }

  /** Remove all listeners of an address; who waits for answers to it is told 503. */
  removeAllListenersOf(url) {
    for (const item of this.listenersOf(url)) item.remove();
    this.answers.endAllOf(url, 503, `${url} is gone.`);
  }

  listenersOf(url) {
    return this.#listeners.get(url) ?? NOBODY;
  }

  /** Hear the answers to request `id` of `url`, without a time-out. */
  addResponseListener(url, id, onAnswer) {
    this.answers.expect(url, id, onAnswer);
  }

  removeResponseListener(url, id) {
    this.answers.forget(url, id);
  }

  /**
   * Post a message. Returns its id, which is made if it has none.
   *
   * @param message {type, from, to, id?, body?}
   * @param onAnswer gets each answer, the provisional ones too; after 15 s one with code 408
   * @param options {timeout: false waits for ever}
   * @throws TypeError for what is no message
   */
  postMessage(message, onAnswer = null, { timeout = true } = {}) {
    const id = message?.id || ++this.#ids;
    const all = Array.isArray(message?.to) ? message.to : null;
    if (onAnswer) {
      if (typeof message.from !== "string")
        throw new TypeError("A message needs a from, which is a text.");
      this.answers.expect(message.from, id, onAnswer, timeout ? { ...message, id } : null);
    }
    try {
      if (all) this.postToMany(message, all, id);
      else this.accept(taken(message, id, this.maxMessage));
    } catch (error) {
      if (error instanceof RangeError) this.tooLarge({ ...message, id }, error);
      else {
        if (onAnswer) this.answers.forget(message.from, id);
        throw error;
      }
    }
    return id;
  }

  /** Post a request; resolves with the body of its final answer, rejects with an AnswerError. */
  request(message) {
    return new Promise((resolve, reject) => {
      this.postMessage(message, ({ body }) => {
        if (body.code < 200) return;
        if (body.code < 300) resolve(body);
        else reject(new AnswerError(body, message.to));
      });
    });
  }

  /** Post a request again, at once, while its answer is 408 or 500; `retries` times at most. */
  postMessageWithRetries(message, retries, onAnswer) {
    const { id: _, ...request } = message;
    const attempt = (left) =>
      this.postMessage(request, (answer) => {
        const { code } = answer.body;
        if ((code === 408 || code === 500) && left > 0) attempt(left - 1);
        else onAnswer(answer);
      });
    return attempt(retries);
  }

  /** Hand on what comes to `outUrl` here to the bus `target`, and back what comes there to `inUrl`. */
  bind(outUrl, inUrl, target) {
    const thisListener = this.addListener(outUrl, (message) => target.postMessage(message));
    const targetListener = target.addListener(inUrl, (message) => this.postMessage(message));
    const unbind = () => [thisListener, targetListener].forEach((item) => item.remove());
    return { thisListener, targetListener, unbind };
  }

  /** Hear of errors: {reason, error?, message?}. Without a listener they go to the console. */
  onError(listener) {
    this.#errorListener = listener;
  }

  /** Count what went wrong, and keep the last; report it unless it `isQuiet`. */
  report(reason, { error, message, text = "", isQuiet = false } = {}) {
    this.counters[reason] = (this.counters[reason] ?? 0) + 1;
    if (error || message) this.#keep(reason, textOf(error) || text, message);
    if (isQuiet) return;
    if (!this.#errorListener) {
      console.error(`${reason}:`, error ?? message);
      return;
    }
    try {
      this.#errorListener({ reason, error, message });
    } catch (fault) {
      console.error("The error hook failed:", fault);
    }
  }

  #keep(reason, text, message) {
    const about = message ? `${text} (${message.type} ${message.from} -> ${message.to})` : text;
    this.errors.push({ at: new Date().toISOString(), reason, text: about.slice(0, MAX_TEXT) });
    if (this.errors.length > MAX_ERRORS) this.errors.shift();
  }

  /** Have `ending` called when the bus closes, such as to end timers. */
  onClose(ending) {
    this.#endings.add(ending);
    return { remove: () => this.#endings.delete(ending) };
  }

  /** End all waits with 503 and forget all listeners. */
  close() {
    for (const ending of [...this.#endings]) ending();
    this.#endings.clear();
    this.answers.close(503, "The bus was closed.");
    for (const items of this.#listeners.values()) for (const item of items) item.isActive = false;
    this.#listeners.clear();
  }

  // --- for the buses ------------------------------------------------------------------------------

  newId() {
    return ++this.#ids;
  }

  /** An answer that nobody takes: one that says an error goes to the error hook, others are counted. */
  unclaimed(message) {
    const code = codeOf(message.body);
    const error = code >= 400 ? new AnswerError(message.body, message.from) : undefined;
    this.report("answers.unexpected", { error, message, isQuiet: !error });
  }

  /** Run one of the application's functions. */
  call(listener, message) {
    try {
      const done = listener(message);
      if (typeof done?.then === "function") {
        done.then(undefined, (error) => this.report("listener.failed", { error, message }));
      }
    } catch (error) {
      this.report("listener.failed", { error, message });
    }
  }

  /** Queue an entry for process(). */
  enqueue(entry) {
    this.#queue.push(entry);
    if (this.#isDraining) return;
    this.#isDraining = true;
    queueMicrotask(() => this.#drain());
  }

  /** Give each of these listeners a message of its own; the last one gets this very message. */
  deliver(items, message) {
    if (message.type !== "response") this.answers.start(message.from, message.id);
    const last = items.length - 1;
    for (let index = 0; index <= last; index += 1) {
      const item = items[index];
      if (item.isActive) this.call(item.listener, index === last ? message : copyFor(message));
    }
  }

  /** Process an entry, or do this with it: a fault of the bus ends one message, never the queue. */
  attempt(entry, act = () => this.process(entry)) {
    try {
      act();
    } catch (error) {
      this.report("bus.failed", { error });
      this.failed?.(entry);
    }
  }

  #drain() {
    const queue = this.#queue;
    let done = 0;
    while (done < queue.length && done < IN_A_ROW) {
      const entry = queue[done];
      done += 1;
      this.attempt(entry);
    }
    if (done === queue.length) {
      queue.length = 0;
      this.#isDraining = false;
    } else {
      this.#queue = queue.slice(done);
      setTimeout(() => this.#drain());
    }
  }

  #remove(item) {
    if (!item.isActive) return;
    item.isActive = false;
    const left = this.listenersOf(item.url).filter((each) => each !== item);
    if (left.length) this.#listeners.set(item.url, left);
    else this.#listeners.delete(item.url);
  }
}
