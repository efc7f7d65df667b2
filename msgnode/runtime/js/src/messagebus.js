/**
 * The MessageBUS: the router of the runtime. It looks at `to` alone; the first line that fits decides.
 *
 *  1 an answer somebody waits for           him
 *  2 listeners of exactly `to`              all of them; a published address goes outside as well,
 *                                           unless the message came from there
 *  3 below the own runtime URL              404
 *  4 came in through a stub                 404: a runtime is no relay between two stubs
 *  5 anything else                          the resolver names the stub, or keeps the message until
 *                                           there is one, or refuses it
 *
 * Rules
 * - What leaves passes `pipelineOut`, what enters `pipelineIn`; what stays inside passes neither, nor do
 *   answers, `read`, the `delete` of a hyperty, talk between components, and signalling of P2P stubs.
 * - Messages of one sender to one address keep their order, also while a handler or the resolver takes
 *   its time with one of them.
 * - An answer goes back through the stub that its question came through, while the runtime has it.
 * - What goes out through another stub than the home domain's is remembered: only that stub may bring an answer
 *   to it (isExpected). What hyperties ask they wait for in their own MiniBUS, which cannot tell.
 * - What cannot be delivered is answered, or else counted. An error answer nobody takes is reported.
 */

import { INFRASTRUCTURE, isBelow, isP2P, schemeOf, twinOf } from "./addresses.js";
import { Bus } from "./bus.js";
import {
  MAX_RECIPIENTS,
  answerTo,
  codeOf,
  copyFor,
  errorBody,
  isAnswerable,
  recipientsOf,
  taken,
} from "./messages.js";
import { Pipeline, isRefusal } from "./pipeline.js";

const MAX_ROUTES = 10_000; // requests from outside whose way back is remembered
const MAX_ASKED = 50_000; // requests that other stubs than home's may answer
const MAX_WAITING = 1000; // messages behind slow handlers, together

export class MessageBus extends Bus {
  /**
   * Names the stub for what nobody here listens to: {route(message, via) -> stub URL or undefined};
   * `via` is the stub that an answer's question came through.
   */
  resolver = null;
  /** What the registrations of this runtime's data objects say besides. */
  registeredWith = {};
  /** Addresses of hyperties that are in no registry. */
  unregistered = new Set();
  #published = new Map(); // address -> how often
  #lanes = new Map(); // sender and `to` of messages that wait behind a handler -> entries
  #waiting = 0;
  #debug = null;
  #returnRoutes = new RequestRoutes(MAX_ROUTES); // of requests from outside: the stub that brought it
  #outRoutes = new RequestRoutes(MAX_ASKED); // of requests from here: the stub abroad that they went through

  /**
   * @param runtimeURL the address of this runtime
   * @param options those of Bus, and {handlerTime: ms, debug: true writes a line for each decision to the console, a
   *   function gets the lines}
   */
  constructor(runtimeURL, options = {}) {
    super(options);
    const { debug = false } = options;
    if (typeof debug !== "boolean" && typeof debug !== "function")
      throw new TypeError("debug is true, false, or a function of a line.");
    this.#debug = debug === true ? (line) => console.debug(line) : debug || null;
    this.runtimeURL = runtimeURL;
    this.pipelineOut = new Pipeline("out", options);
    this.pipelineIn = new Pipeline("in", options);
  }

  /** Send what is posted to `address` outside too, even if somebody here listens to it. */
  addPublish(address) {
    this.#published.set(address, (this.#published.get(address) ?? 0) + 1);
    let isActive = true;
    const remove = () => {
      if (!isActive) return;
      isActive = false;
      const left = this.#published.get(address) - 1;
      if (left) this.#published.set(address, left);
      else this.#published.delete(address);
    };
    return { remove };
  }

  /** Give the listeners of `to`, too, what comes to `from`, unchanged. */
  addForward(from, to) {
    return this.addListener(from, (message) => this.deliver(this.listenersOf(to), message));
  }

  /** Whether an address is of this runtime alone: below its URL, or listened to and not published here. */
  isLocal(address) {
    return (
      isBelow(address, this.runtimeURL) ||
      (this.listenersOf(address).length > 0 && !this.#published.has(address))
    );
  }

  /** Whether an address is this runtime's URL or below it. */
  isBelowRuntime(address) {
    return isBelow(address, this.runtimeURL);
  }

  /** Whether anybody here listens to an address. */
  isHeard(address) {
    return this.listenersOf(address).length > 0;
  }

  /** Whether anybody here waits for the answer to a request. */
  isAwaited({ from, id }) {
    return this.answers.isAwaited(from, id);
  }

  /** Whether the stub `via`, which is not the home domain's, was handed what this answers. */
  isExpected(answer, via) {
    return this.#outRoutes.of(answer) === via || this.answers.isExpected(answer, via);
  }

  /** A message that the stub `via` brought in. The core alone says who brought it. */
  postFrom(via, message) {
    const copy = taken(message, this.newId(), this.maxMessage);
    const body = { ...copy.body, via };
    this.enqueue({ message: Object.freeze({ ...copy, body }), via });
  }

  /** Hand a message to the listener of a stub. */
  forward(stubURL, message) {
    const items = this.listenersOf(stubURL);
    this.#trace(message, "out", isP2P(stubURL) ? "channel" : "node", `through ${stubURL}`);
    if (message.type !== "response") {
      this.answers.sentThrough(stubURL, message);
      if (isAnswerable(message) && !this.resolver?.isHome?.(stubURL))
        this.#outRoutes.keep(message, stubURL);
    }
    if (items.length) this.deliver(items, message);
    else this.refuse(message, 503, `The stub ${stubURL} is gone.`);
  }

  /** Say that a message is not delivered, to who sent it; count it if he does not want to know. */
  refuse(message, code, text) {
    this.report(`undeliverable.${code}`, { message, text, isQuiet: true });
    this.#trace(message, "--", "none", `${code} ${text}`);
    if (isAnswerable(message)) {
      this.enqueue({ message: taken(answerTo(message, errorBody(code, text)), 0), via: undefined });
    } else if (message.type === "response") {
      this.#drop(message);
    } else {
      this.answers.start(message.from, message.id); // who waits all the same, waits no longer than for others
    }
  }

  // --- for Bus ------------------------------------------------------------------------------------

  accept(message) {
    if (message.body?.via !== undefined) delete message.body.via; // the core alone says it
    this.enqueue({ message, via: undefined });
  }

  postToMany(message, all, id) {
    const to = recipientsOf(all);
    if (!to.length || to.length > MAX_RECIPIENTS) {
      const text = `A message has 1 to ${MAX_RECIPIENTS} recipients, not ${to.length}.`;
      this.refuse({ ...message, id, to: message.from }, 400, text);
      return;
    }
    for (const each of to) this.accept(taken({ ...message, to: each }, id, this.maxMessage));
  }

  tooLarge(message, error) {
    this.refuse({ ...message, to: recipientsOf(message.to)[0] }, 413, error.message);
  }

  failed({ message }) {
    this.refuse(message, 500, "The bus of the runtime failed.");
  }

  process(entry) {
    const { message, via } = entry;
    if (this.#lanes.size) {
      const lane = this.#lanes.get(laneOf(message));
      if (lane) {
        this.#queueIn(lane, entry);
        return;
      }
    }
    if (
      message.type === "response" &&
      this.answers.take(message, via, this.resolver?.isHome?.(via))
    ) {
      this.#trace(message, directionOf(via), wayOf(via), "the awaited answer");
      return;
    }
    const own = this.#ownListeners(message.to);
    if (via !== undefined) this.#enter(message, via, own);
    else if (own.length) {
      this.#trace(message, "own", "here", `${own.length} listening`);
      const isPublished = this.#published.has(message.to);
      this.deliver(own, isPublished ? copyFor(message) : message);
      if (isPublished) this.#leave(message);
    } else if (isBelow(message.to, this.runtimeURL)) this.#nobody(message);
    else this.#leave(message);
  }

  // --- in and out -----------------------------------------------------------------------------------

  #enter(message, via, own) {
    if (isAnswerable(message)) this.#returnRoutes.keep(message, via);
    if (own.length) this.#trace(message, "in", wayOf(via), `${own.length} listening`);
    if (!own.length) this.#nobody(message);
    else if (this.pipelineIn.isEmpty || isExempt(message)) this.deliver(own, message);
    else {
      this.#pass(this.pipelineIn, message, via, (passed) => {
        const items = this.#ownListeners(passed.to);
        if (items.length) this.deliver(items, passed);
        else this.#nobody(passed);
      });
    }
  }

  #leave(message) {
    if (this.pipelineOut.isEmpty || isExempt(message)) this.#send(message);
    else this.#pass(this.pipelineOut, message, undefined, (passed) => this.#send(passed));
  }

  #send(message) {
    if (!this.resolver) {
      this.refuse(message, 404, `Nobody listens to ${message.to}.`);
      return;
    }
    const stubURL = this.resolver.route(message, this.#returnRoute(message));
    if (stubURL !== undefined) this.forward(stubURL, message);
    else this.#trace(message, "out", "--", "taken: it waits, takes a channel, or was refused");
  }

  /** A line for who debugs: time, direction, way, message, decision. */
  #trace({ type, id, from, to, body }, direction, way, decision) {
    if (!this.#debug) return;
    const code = type === "response" ? ` ${codeOf(body)}` : "";
    const time = new Date().toISOString().slice(11, 23);
    const line = `${time} ${direction} ${way} ${type}${code} ${id} ${from} -> ${to}: ${decision}`;
    this.call(this.#debug, line);
  }

  /** The stub that an answer goes back through: the node there has seen the question, no other has. */
  #returnRoute(message) {
    if (message.type !== "response") return undefined;
    const via = this.#returnRoutes.of(message);
    if (codeOf(message.body) >= 200) this.#returnRoutes.forget(message); // another follows a provisional one
    return via;
  }

  #pass(pipeline, message, via, next) {
    const result = pipeline.run(message, via);
    if (typeof result?.then !== "function") {
      this.#passed(result, message, next);
      return;
    }
    const key = laneOf(message);
    const lane = [];
    this.#lanes.set(key, lane);
    result.then((late) => {
      this.#lanes.delete(key);
      this.attempt({ message }, () => this.#passed(late, message, next));
      this.#resume(lane);
    });
  }

  #passed(result, message, next) {
    if (isRefusal(result)) {
      this.report("blocked", { message, isQuiet: true });
      if (result.error) this.report("handler.failed", { error: result.error, message });
      this.refuse(message, result.code, result.desc ?? result.description ?? "Refused.");
    } else next(result === message ? message : taken(result, message.id, this.maxMessage));
  }

  /** Process what has waited; the rest goes on waiting if one of them is held up again. */
  #resume(lane) {
    this.#waiting -= lane.length;
    while (lane.length) {
      const entry = lane.shift();
      this.attempt(entry);
      const again = this.#lanes.get(laneOf(entry.message));
      if (again) {
        this.#waiting += lane.length;
        again.push(...lane.splice(0));
      }
    }
  }

  #queueIn(lane, entry) {
    if (this.#waiting >= MAX_WAITING) {
      this.refuse(entry.message, 503, "Too many messages wait for a handler of the pipeline.");
      return;
    }
    this.#waiting += 1;
    lane.push(entry);
  }

  #ownListeners(to) {
    const exact = this.listenersOf(to);
    if (exact.length || !isBelow(to, this.runtimeURL)) return exact;
    return this.listenersOf(twinOf(to));
  }

  #nobody(message) {
    this.refuse(message, 404, `Nobody listens to ${message.to}.`);
  }

  #drop(message) {
    this.unclaimed(message);
  }
}

function directionOf(via) {
  return via === undefined ? "own" : "in";
}

function wayOf(via) {
  if (via === undefined) return "here";
  return isP2P(via) ? "channel" : "node";
}

function laneOf({ from, to }) {
  return `${from}\n${to}`;
}

/** What no pipeline looks at. */
function isExempt({ type, from, to, body }) {
  if (type === "response" || type === "read") return true;
  if (type === "delete" && from.startsWith("hyperty://")) return true;
  if (INFRASTRUCTURE.has(schemeOf(from)) && INFRASTRUCTURE.has(schemeOf(to))) return true;
  return [from, to, body?.source, body?.subscriber].some(
    (end) => typeof end === "string" && isP2P(end),
  );
}

/**
 * The stub that each of the latest requests came or went through, by its sender and id.
 *
 * There are two generations: when the newer one is full, the older is forgotten and the newer takes its
 * place. So at least half of `most` are remembered, and what is forgotten costs nothing. (A Map whose oldest
 * entry is deleted again and again looks through all that was deleted before.)
 */

export class RequestRoutes {
  #newer = new Map();
  #older = new Map();
  #half;

  /** @param most how many are remembered */
  constructor(most) {
    this.#half = most / 2;
  }

  /** Remember the route of a request. */
  keep({ from, id }, route) {
    if (this.#newer.size >= this.#half) {
      this.#older = this.#newer;
      this.#newer = new Map();
    }
    this.#newer.set(keyOf(from, id), route);
  }

  /** The route of the request that this is an answer to, undefined if none is remembered. */
  of({ to, id }) {
    const key = keyOf(to, id);
    return this.#newer.get(key) ?? this.#older.get(key);
  }

  /** Forget the route of the request that this is an answer to. */
  forget({ to, id }) {
    const key = keyOf(to, id);
    this.#newer.delete(key);
    this.#older.delete(key);
  }
}

function keyOf(address, id) {
  return `${address}\n${id}`;
}
