/**
 * The resolver: which stub takes a message that nobody in the runtime listens for.
 *
 * Rules
 * - An answer goes through the stub that brought the question, if it is still there.
 * - The domain of `to` decides (addresses.js); `peers`, if there are any, are asked first.
 * - A stub that is loaded is named at once, connected or not: it queues by itself while it is away.
 * - While one is being loaded, all messages to its domain wait in one queue and leave it in order.
 * - While one cannot be loaded the home stub takes them, if `routing` says `stub-else-node`.
 * - What cannot go out is answered: 400 no domain, 404 no stub, 413 too large, 502 and 501 the stub is
 *   refused, 503 refused or too much waits, 504 the catalogue does not answer.
 */

import { stubFor } from "./addresses.js";
import { bytesOf } from "./messages.js";
import { StubEntry } from "./stub-list.js";

const MAX_LOADS = 100; // domains that are looked up at a time

export class Resolver {
  /**
   * Runtimes that are reached directly: {route(message, via) -> the URL of the stub that it goes out through,
   * null if it was taken, undefined if it simply goes through the node}.
   */
  peers = null;

  /** Registries that are asked over REST: {takes(message)}. */
  registries = null;

  /**
   * @param bus the MessageBUS
   * @param loader loads stubs: {loads: how many now, load(entry), connect(entry), expectLive(entry)}
   * @param stubs the StubList
   * @param options {homeDomain, interworking: keys, routing, clock}
   */
  constructor(bus, loader, stubs, { homeDomain, interworking = [], routing = {}, clock }) {
    this.bus = bus;
    this.loader = loader;
    this.stubs = stubs;
    this.homeDomain = homeDomain;
    this.names = { interworking: new Set(interworking), routing };
    this.clock = clock;
  }

  /**
   * The URL of the stub for a message; undefined if the message waits or has been refused. It is the
   * stub `via`, where one is given that is there.
   */
  route(message, via) {
    if (this.registries?.takes(message)) return undefined;
    const direct = this.peers?.route(message, via);
    return direct === undefined ? this.routeByNode(message, via) : (direct ?? undefined);
  }

  /** As route(), whatever runtimes are reached directly. */
  routeByNode(message, via) {
    const back = via === undefined ? undefined : this.stubs.ofURL(via);
    if (back) return this.#through(back, message);
    const target = stubFor(message.to, this.homeDomain, this.names);
    if (!target) return this.#refuse(message, 400, `There is no domain in ${message.to}.`);
    if (!target.key) return this.#refuse(message, 404, `There is no stub for ${message.to}.`);
    const entry = this.entryFor(target);
    if (!entry)
      return this.#refuse(
        message,
        503,
        `Too many domains are in use or being looked up; ${target.domain} is not.`,
      );
    return this.#through(entry, message);
  }

  /** Whether this is the URL of the home domain's stub. */
  isHome(url) {
    return url !== undefined && this.stubs.get(this.homeDomain)?.url === url;
  }

  /** The entry for a target, being loaded if it was not there; undefined if too many are. */
  entryFor(target) {
    const now = this.clock.now();
    let entry = this.stubs.get(target.key);
    const isRetried =
      entry?.status === "deployment-failed" && !entry.isLoading && now >= entry.retryAt;
    if (entry && !isRetried) return entry;
    if (this.loader.loads >= MAX_LOADS) return entry; // that a retry is due can wait
    if (!entry) {
      if (!this.stubs.makeRoom()) return undefined;
      entry = this.stubs.add(new StubEntry(target, now));
    }
    this.loader.load(entry);
    return entry;
  }

  #through(entry, message) {
    if (entry.isLoading) {
      if (!entry.wait(message))
        this.#refuse(message, 503, `Too many messages wait for the stub of ${entry.domain}.`);
      return undefined;
    }
    if (entry.status === "deployment-failed") {
      const home = this.standIn(entry);
      return home ? this.#through(home, message) : this.#refuse(message, entry.code, entry.desc);
    }
    const now = this.clock.now();
    if (entry.status === "failed") {
      if (now < entry.retryAt)
        return this.#refuse(message, 503, entry.desc || `The stub of ${entry.domain} has failed.`);
      this.loader.connect(entry);
    }
    return this.admit(entry, message) ? entry.url : undefined;
  }

  /** The entry of the home stub, if that takes what is for a stub which cannot be loaded. */
  standIn({ kind, key, domain }) {
    const isNode =
      kind === "domain" &&
      key !== this.homeDomain &&
      this.names.routing[domain] === "stub-else-node";
    return isNode
      ? this.entryFor({ kind, key: this.homeDomain, domain: this.homeDomain })
      : undefined;
  }

  /** Send what has waited for a stub that cannot be loaded through the home stub, or refuse it. */
  giveUp(entry) {
    const home = this.standIn(entry);
    for (const message of entry.takeAll()) {
      const url = home
        ? this.#through(home, message)
        : this.#refuse(message, entry.code, entry.desc);
      if (url !== undefined) this.bus.forward(url, message);
    }
  }

  /** Whether a message may leave through an entry's stub; it is noted there. */
  admit(entry, message) {
    if (entry.maxFrame < Infinity && bytesOf(message) > entry.maxFrame - 256) {
      this.#refuse(
        message,
        413,
        `The message is larger than the ${entry.maxFrame} bytes that ${entry.domain} takes.`,
      );
      return false;
    }
    entry.sent(message, this.clock.now());
    this.loader.expectLive(entry);
    return true;
  }

  #refuse(message, code, text) {
    this.bus.refuse(message, code, text);
    return undefined;
  }
}
