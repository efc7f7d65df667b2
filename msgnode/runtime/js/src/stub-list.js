/**
 * The stubs of a runtime: one entry for each domain (or legacy scheme, or IdP proxy) that is in use.
 *
 *   deploying           loading; messages wait            deployment-failed   not loadable until `retryAt`
 *   deployed, created   loaded, not yet connected         failed              refused by its node until `retryAt`
 *   in-progress, live   connecting, connected             disconnected        comes back by itself
 *
 * While an entry is `isLoading` (the first time, or again after its sandbox died) messages wait in it:
 * 1,000 or 4 Mi characters at most.
 */

import { bytesOf, codeOf, isAnswerable } from "./messages.js";

export const MAX_QUEUED = 1000; // messages
export const MAX_QUEUED_SIZE = 4_194_304; // characters
export const MAX_ENTRIES = 10_000; // destinations that are remembered
const MAX_OPEN = 10_000; // unanswered requests that are remembered
const OPEN_TIME = 30_000; // ms after which nobody waits any more
const STATES = ["created", "in-progress", "live", "disconnected", "failed"];
const GETTING_LIVE = ["deployed", "created", "in-progress"];
const AT_NODE = /^domain:\/\/msg-node\.[^/]+\/(sm|(?:hyperty-|object-)?address-allocation)$/;
const AT_A_TIME = 100; // addresses in one request
const SYNONYMS = { connected: "live", create: "created" };

export class StubEntry {
  status = "deploying";
  desc = "";
  code = 503;
  url = "";
  descriptor = null;
  descriptorURL = "";
  digest = "";
  sandbox = null;
  listeners = [];
  lastUsed = 0;
  failures = 0; // loads that failed in a row
  deaths = 0; // sandboxes that died in a row
  retryAt = 0;
  isLoading = false;
  loading = null; // the promise of the load that runs
  cancel = null; // ends the load that runs
  liveSince = 0;
  wasLive = false;
  queue = [];
  queued = 0;
  open = new Map(); // sender and id -> {message, at}: requests that went out and are not answered
  held = new Map(); // address the node holds for this runtime -> {from, to, source}: how it is subscribed again

  constructor({ kind, key, domain }, now) {
    this.kind = kind;
    this.key = key;
    this.domain = domain;
    this.lastUsed = now;
  }

  /** Whether the stub is there and says neither that it is live nor that it cannot be. */
  get isGettingLive() {
    return GETTING_LIVE.includes(this.status);
  }

  /** Most bytes a message may have that goes through this stub. */
  get maxFrame() {
    return this.descriptor?.configuration.maxFrame ?? Infinity;
  }

  /** Keep a message until the stub is there; false if there is no room. */
  wait(message) {
    const size = bytesOf(message);
    if (this.queue.length >= MAX_QUEUED || this.queued + size > MAX_QUEUED_SIZE) return false;
    this.queue.push(message);
    this.queued += size;
    return true;
  }

  /** What has waited, in order. */
  takeAll() {
    this.queued = 0;
    return this.queue.splice(0);
  }

  /** Remember a request that goes out, and what it claims at the node. */
  sent(message, now) {
    this.lastUsed = now;
    const { type, from, to, id, body } = message;
    if (isAnswerable(message) && type !== "update") {
      if (this.open.size >= MAX_OPEN) this.open.delete(this.open.keys().next().value);
      this.open.set(`${from}\n${id}`, { message, at: now });
    }
    const [, part] = AT_NODE.exec(to) ?? [];
    if (!part) return;
    for (const each of named(body)) {
      if (part === "sm" && type === "subscribe")
        this.held.set(each, { from, to, source: body.source });
      else if (type === "unsubscribe" || type === "delete") this.held.delete(each);
    }
  }

  /** Note a message that the stub brought in. */
  received(message, now) {
    this.lastUsed = now;
    if (message.type !== "response" || message.body?.code < 200) return;
    const key = `${message.to}\n${message.id}`;
    const request = this.open.get(key)?.message;
    this.open.delete(key);
    const [, part] = AT_NODE.exec(request?.to) ?? [];
    if (!part) return;
    const { type, from, to, body } = request;
    const isGranted = codeOf(message.body) === 200;
    if (!isGranted && type === "subscribe") for (const each of named(body)) this.held.delete(each);
    if (!isGranted || type !== "create") return;
    for (const each of texts(message.body.value?.allocated))
      this.held.set(each, { from, to: `${to.slice(0, -part.length)}sm` });
  }

  /** Whether nobody needs the stub since `since`. */
  isIdle(since, now) {
    for (const [key, { at }] of this.open) {
      if (now - at < OPEN_TIME) break;
      this.open.delete(key);
    }
    return !this.isLoading && this.lastUsed <= since && !this.open.size && !this.held.size;
  }

  /** The state a status event says; undefined if it says none. */
  enter(value, desc = "") {
    const state = SYNONYMS[value] ?? value;
    if (!STATES.includes(state)) return undefined;
    this.status = state;
    this.desc = desc;
    return state;
  }
}

function named(body) {
  return texts(
    [
      body?.resources,
      body?.resource,
      body?.childrenResources,
      body?.subscribe,
      body?.unsubscribe,
    ].flat(),
  );
}

function texts(all) {
  return Array.isArray(all) ? all.filter((each) => typeof each === "string") : [];
}

export class StubList {
  #entries = new Map(); // key -> entry

  get(key) {
    return this.#entries.get(key);
  }

  /** The entry of a stub, undefined if there is no such stub any more. */
  ofURL(url) {
    for (const entry of this.#entries.values()) if (entry.url === url) return entry;
    return undefined;
  }

  add(entry) {
    this.#entries.set(entry.key, entry);
    return entry;
  }

  /** Whether one more finds room; the one that failed longest ago makes room for it. */
  makeRoom() {
    if (this.#entries.size < MAX_ENTRIES) return true;
    for (const entry of this.#entries.values()) {
      if (entry.status !== "deployment-failed" || entry.isLoading) continue;
      this.#entries.delete(entry.key);
      return true;
    }
    return false;
  }

  /** Take an entry out, unless another has taken its place. */
  remove(entry) {
    if (this.#entries.get(entry.key) === entry) this.#entries.delete(entry.key);
  }

  [Symbol.iterator]() {
    return [...this.#entries.values()][Symbol.iterator]();
  }
}

/**
 * Subscribe again what a node held for a stub that is no more, through the one that follows.
 *
 * @param held address -> {from, to, source}: who subscribed it, where, for whom
 * @param bus the MessageBUS
 * @param onRefused called with what the node refuses, in words
 */
export function announce(held, bus, onRefused) {
  const batches = new Map();
  for (const [address, { from, to, source }] of held) {
    const key = JSON.stringify([from, to, source]);
    const batch = batches.get(key) ?? { from, to, source, addresses: [] };
    batch.addresses.push(address);
    batches.set(key, batch);
  }
  for (const { from, to, source, addresses } of batches.values()) {
    while (addresses.length) {
      const resources = addresses.splice(0, AT_A_TIME);
      const body = source === undefined ? { resources } : { resources, source };
      bus.postMessage({ type: "subscribe", from, to, body }, ({ body: { code } }) => {
        if (code >= 300 && code !== 408)
          onRefused(
            `The node answers ${code} to ${resources.length} addresses that it held before.`,
          );
      });
    }
  }
}
