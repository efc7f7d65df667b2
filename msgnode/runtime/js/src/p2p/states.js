/**
 * States of P2P connections, and who may set one up when. Pure.
 *
 * Requester
 *     created ──answered──► in-progress ──opened──► live ──lost──► disconnected ──redial──► created
 *        └──refused──► failed ◄──broken, timed out──┘
 *     created, in-progress ──glare──► in-progress   (the other side's invitation is awaited)
 *     live ──idle, forbidden──► ended; disconnected ──exhausted──► ended; failed ──forgotten──► ended
 *
 * Handler, for each remote runtime
 *     created ──announced──► in-progress ──opened──► live ──lost──► disconnected ──forgotten──► ended
 *
 * "" and "ended" are told to nobody; the others are the words of `<stub URL>/status`. It follows
 * docs/reference/p2p.md, rows 17-25.
 */

import { RUNTIME_SCHEMES, parse } from "../addresses.js";

const MAX_PEERS = 10_000; // remote runtimes whose failures or invitations are remembered
const STATUSES = new Set(["created", "in-progress", "live", "disconnected", "failed"]);
const SETTING_UP = ["created", "in-progress"];

/** From each of these states each of these events leads to one state. */
function rows(states, state, ...events) {
  return states.flatMap((before) => events.map((event) => [`${before} ${event}`, state]));
}

const COMMON = [
  ...rows([""], "created", "deployed"),
  ...rows(SETTING_UP, "live", "opened"), // the field's first word may be missing
  ...rows(SETTING_UP, "failed", "broken", "timed out", "forbidden"),
  ...rows(["live"], "disconnected", "lost", "idle", "forbidden"),
  ...rows(["disconnected", "failed"], "ended", "forgotten"),
];

export const REQUESTER = new Map([
  ...COMMON,
  ...rows(["created"], "in-progress", "answered"),
  ...rows(SETTING_UP, "in-progress", "glare"),
  ...rows(SETTING_UP, "failed", "refused"),
  ...rows(["disconnected"], "created", "redial"),
  ...rows(["disconnected"], "ended", "exhausted"),
]);

export const HANDLER = new Map([
  ...COMMON,
  ...rows(["created"], "in-progress", "announced"),
  ...rows(["created"], "failed", "refused"),
]);

/** Events after which the requester does not dial again by itself. */
export const NO_RETURN = new Set(["idle", "forbidden", "refused"]);

/** The state that follows; the same one where the event comes too late to matter. */
export function after(table, state, event) {
  return table.get(`${state} ${event}`) ?? state;
}

/** The state of a status event, in the field's words too; null for one that is unknown. */
export function statusOf(word) {
  const state = word === "create" ? "created" : word;
  return STATUSES.has(state) ? state : null;
}

/** Whether the runtime `own` goes on with its invitation when both invite at once. */
export function staysRequester(own, other) {
  return comparable(own) < comparable(other);
}

function comparable(runtime) {
  const colon = runtime.indexOf(":");
  return RUNTIME_SCHEMES.includes(runtime.slice(0, colon))
    ? `runtime${runtime.slice(colon)}`
    : runtime;
}

/** The runtime URL above a handler's, "" if there is none (the field's domain-level form). */
export function runtimeOfHandler(handler) {
  if (!RUNTIME_SCHEMES.includes(parse(handler)?.scheme)) return "";
  const mark = handler.indexOf("/p2phandler/");
  if (mark < 0 || mark + 12 === handler.length) return "";
  const head = handler.slice(0, mark);
  return parse(head)?.path ? head : "";
}

/** A runtime URL in the spelling that it is known by here. */
export function plain(runtime) {
  return runtime.startsWith("hyperty-") ? runtime.slice(8) : runtime;
}

/** Keep a key as the newest of a map that is bounded. */
export function keepNewest(map, key, value, most = MAX_PEERS) {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value);
}

/** Remote runtimes that are left alone after a failure. */
export class Quarantine {
  #failures = new Map(); // runtime -> {count, until}
  #first;
  #longest;

  constructor(first = 30_000, longest = 1_800_000) {
    this.#first = first;
    this.#longest = longest;
  }

  /** Note a failure. Returns when the next try may be made. */
  failed(runtime, now) {
    const { count = 0 } = this.#failures.get(runtime) ?? {};
    const until = now + Math.min(this.#longest, this.#first * 2 ** Math.min(count, 20));
    keepNewest(this.#failures, runtime, { count: count + 1, until });
    return until;
  }

  /** When the next try may be made; 0 for a runtime that did not fail. */
  until(runtime) {
    return this.#failures.get(runtime)?.until ?? 0;
  }

  /** A connection came about: failures count from the beginning again. */
  lift(runtime) {
    this.#failures.delete(runtime);
  }
}

/** When a lost connection is dialled again: at most `tries` times in `span`. */
export class Redials {
  #made = [];

  constructor({ tries = 6, span = 600_000, longest = 60_000 } = {}) {
    Object.assign(this, { tries, span, longest });
  }

  /** Milliseconds until the next try, which counts from now on; null if there were too many.
   *  `jitter` is from 0 to 1, at random. */
  next(now, jitter) {
    this.#made = this.#made.filter((at) => at > now - this.span);
    const count = this.#made.length;
    if (count >= this.tries) return null;
    this.#made.push(now);
    if (!count) return jitter * 1000;
    return Math.min(this.longest, 2 ** count * 1000) * (0.5 + jitter / 2);
  }
}

/** How many invitations are taken. */
export class Invitations {
  #came = new Map();

  constructor({ connections = 32, eachMinute = 10 } = {}) {
    Object.assign(this, { connections, eachMinute });
  }

  /** Count an invitation; whether it is one too many (429). `connections` are those to other runtimes. */
  isTooMany(runtime, connections, now) {
    const came = (this.#came.get(runtime) ?? []).filter((at) => at > now - 60_000);
    keepNewest(this.#came, runtime, came);
    if (came.length >= this.eachMinute || connections >= this.connections) return true;
    came.push(now);
    return false;
  }

  /** The last one was not of this runtime. */
  forgetLast(runtime) {
    this.#came.get(runtime)?.pop();
  }
}

/**
 * The invitations that come, and the set-ups that were begun for them.
 *
 * Nobody has proved who he is when he invites: see docs/reference/p2p.md, row 24.
 */
export class InvitationLimits {
  #ofRuntimes = new Invitations();
  #ofStubs = new Invitations();
  #ofField = new Invitations();
  #underWay = new Map(); // set-up -> {runtime, isField}

  constructor({ fieldAtATime = 8 } = {}) {
    this.fieldAtATime = fieldAtATime;
  }

  /** Count an invitation; whether it is one too many (429). `connections` are those to other runtimes. */
  isTooMany({ runtime: named, stub, isField }, connections, now) {
    const runtime = plain(named);
    const begun = [...this.#underWay.values()];
    const all = connections + begun.filter((each) => each.runtime !== runtime).length;
    if (isField) {
      const isFull = begun.filter((each) => each.isField).length >= this.fieldAtATime;
      return isFull || this.#ofField.isTooMany(runtime, all, now);
    }
    return (
      this.#ofStubs.isTooMany(`${runtime} ${stub}`, 0, now) ||
      this.#ofRuntimes.isTooMany(runtime, all, now)
    );
  }

  /** A set-up is begun. */
  begin(setUp, { runtime, isField }) {
    this.#underWay.set(setUp, { runtime: plain(runtime), isField });
  }

  /** It has come to its channel, or to nothing. */
  end(setUp) {
    this.#underWay.delete(setUp);
  }

  /** This runtime has not made the invitation that names it. */
  denied(runtime) {
    this.#ofRuntimes.forgetLast(plain(runtime));
  }
}
