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

  /**
   * @param core as for Sandbox
   * @param options {isOwn(domain): whether its stub runs in the core's realm, openChannel({domain,
   *   kind, url, rate, memory}): a boundary, loadOwn: loads a module in the core's realm, limits, clock}
   */
  constructor(core, options) {
    this.core = core;
    this.options = options;
  }

  /** The sandbox for an entry's stub, a new one if there is none. @throws LoadError */
  async open({ domain }, descriptor) {
    const isOwn = this.options.isOwn(domain);
    const needsWindow = Boolean(descriptor.constraints.webrtc || descriptor.constraints.mic || descriptor.constraints.camera);
    const isWindowOnly = Boolean(descriptor.constraints.windowSandbox && !descriptor.constraints.browser);
    const kind = isOwn ? "own" : needsWindow || isWindowOnly ? "window" : "worker";
    return this.#of(`stub ${kind} ${domain}`, { domain, kind, url: descriptor.configuration.url });
  }

  /** A sandbox for the hyperties of a domain. */
  openForHyperty(domain) {
    return this.#of(`hyperty worker ${domain}`, { domain, kind: "worker" });
  }

  /** End a sandbox that nobody is in. */
  release(sandbox) {
    if (sandbox.isEmpty) sandbox.kill();
  }

  close() {
    for (const sandbox of this.#open.values()) sandbox.kill("The runtime closes.");
  }

  async #of(key, request) {
    const known = this.#open.get(key);
    if (known && !known.isDead) return known;
    if (this.#open.size >= MAX_SANDBOXES) throw new LoadError(503, `There are ${MAX_SANDBOXES} sandboxes already.`);
    const { openChannel, loadOwn, limits = {}, clock } = this.options;
    const channel = request.kind === "own" ? inProcessChannel(loadOwn) : await openChannel({ ...request, limits });
    const sandbox = new Sandbox(key, channel, this.core, { limits, clock });
    sandbox.onEnd = () => this.#open.get(key) === sandbox && this.#open.delete(key);
    this.#open.set(key, sandbox);
    return sandbox;
  }
}
