/**
 * The sandboxes of a runtime: one for each domain and kind, 16 at most.
 *
 * Rules
 * - Domains are compared whole: `a.example` and `aa.example` never share one.
 * - Hyperties and stubs never share one.
 * - The home domain's own stub runs in the core's realm if the runtime was told so.
 */

import { LoadError } from "../errors.js";
import { inProcessChannel } from "./in-process.js";
import { Sandbox } from "./sandbox.js";

const MAX_SANDBOXES = 16;

export class Sandboxes {
  #open = new Map(); // key -> Sandbox
  #opening = new Map(); // key -> promise of a Sandbox
  #isClosed = false;

  /**
   * @param core as for Sandbox
   * @param options {isOwn(domain): whether its stub runs in the core's realm, openChannel({domain,
   *   kind, url, limits}): a boundary, prepare(): one will soon be asked for, loadOwn(source, config): loads a module in the core's realm, limits, clock}
   */
  constructor(core, options) {
    this.core = core;
    this.options = options;
  }

  /** The sandbox for an entry's stub, a new one if there is none. @throws LoadError */
  async open({ domain }, descriptor) {
    const isOwn = this.options.isOwn(domain);
    const needsWindow = Boolean(
      descriptor.constraints.webrtc || descriptor.constraints.mic || descriptor.constraints.camera,
    );
    const isWindowOnly = Boolean(
      descriptor.constraints.windowSandbox && !descriptor.constraints.browser,
    );
    const kind = isOwn ? "own" : needsWindow || isWindowOnly ? "window" : "worker";
    return this.#of(`stub ${kind} ${domain}`, { domain, kind, url: descriptor.endpoint });
  }

  /** A stub of this domain is going to be loaded: have ready what its sandbox takes. */
  prepare({ domain }) {
    const isThere = [...this.#open.keys(), ...this.#opening.keys()].some(
      (key) => key.startsWith("stub ") && key.endsWith(` ${domain}`),
    );
    if (!isThere && !this.#isClosed && !this.options.isOwn(domain) && this.#hasRoom())
      this.options.prepare?.();
  }

  /** A sandbox for the hyperties of a domain. */
  openForHyperty(domain) {
    return this.#of(`hyperty worker ${domain}`, { domain, kind: "worker" });
  }

  /** A sandbox for the P2P stubs of a domain: they need a window, or the core's realm. */
  openForPeers(domain) {
    const kind = this.options.isOwn(domain) ? "own" : "window";
    return this.#of(`p2p ${kind} ${domain}`, { domain, kind });
  }

  /** End a sandbox that nobody is in. */
  release(sandbox) {
    if (sandbox.isEmpty) sandbox.kill();
  }

  [Symbol.iterator]() {
    return this.#open.values();
  }

  close() {
    this.#isClosed = true;
    for (const sandbox of this.#open.values()) sandbox.kill("The runtime closes.");
  }

  #hasRoom() {
    return this.#open.size + this.#opening.size < MAX_SANDBOXES;
  }

  async #of(key, request) {
    const known = this.#open.get(key);
    if (known && !known.isDead) return known;
    const coming = this.#opening.get(key);
    if (coming) return coming;
    if (!this.#hasRoom()) throw new LoadError(503, `There are ${MAX_SANDBOXES} sandboxes already.`);
    const opening = this.#opened(key, request).finally(() => this.#opening.delete(key));
    this.#opening.set(key, opening);
    return opening;
  }

  async #opened(key, request) {
    const { openChannel, loadOwn, limits = {}, clock } = this.options;
    const channel =
      request.kind === "own"
        ? inProcessChannel(loadOwn)
        : await openChannel({ ...request, key, limits });
    if (this.#isClosed) {
      channel.kill();
      throw new LoadError(503, "The runtime closes.");
    }
    if (channel.isIsolated === false) this.core.count("sandbox.not-isolated");
    const sandbox = new Sandbox(key, channel, this.core, { limits, clock });
    sandbox.isOwn = request.kind === "own";
    sandbox.onEnd = () => this.#open.get(key) === sandbox && this.#open.delete(key);
    this.#open.set(key, sandbox);
    return sandbox;
  }
}
