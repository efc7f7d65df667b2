/**
 * A sandbox as the core sees it: components behind a port, none of which is believed.
 *
 * Rules
 * - Every frame is checked. A stub may speak as itself, to its own status; everything else it posts is
 *   something it brought in: it is marked with the stub, must not come from somebody of this runtime,
 *   and is judged by who loaded the stub (inbound.js). A hyperty may speak as itself and as what it reports.
 * - A component must start within 10 s.
 * - The port is pinged, after 5 s of silence at the latest. Whoever has not read it for 5 s, or lets
 *   4 Mi characters wait, is killed. A core that was itself held up does not blame the sandbox.
 * - Death is told once, with the reason; whatever comes afterwards is ignored.
 */

import { limited, systemClock } from "../clock.js";
import { LoadError } from "../errors.js";
import { answerTo, codeOf, errorBody, isAnswerable } from "../messages.js";
import { EXTERNAL, INTERNAL } from "./inside.js";
import { LIMITS, roughSize } from "./limits.js";

export class Sandbox {
  isDead = false;
  isOwn = false; // no boundary: the core's own realm
  #channel;
  #core;
  #limits;
  #clock;
  #components = new Map(); // url -> {onMessage, onDeath}
  #commands = new Map(); // id -> resolve
  #ids = 0;
  #pings = 0;
  #pingedAt = 0; // when the oldest ping that waits for its pong was sent; 0: none waits
  #unread = 0; // characters sent
  #unreadAtPing = 0;
  #timer = null;
  #timerDue = 0;

  /**
   * @param key what it is for: domain and kind
   * @param channel {send(frame), onFrame, onClose, kill()}
   * @param core {isLocal(address), count(reason)}
   * @param options {limits, clock}
   */
  constructor(key, channel, core, { limits = LIMITS, clock = systemClock } = {}) {
    this.key = key;
    this.#channel = channel;
    this.#core = core;
    this.#limits = { ...LIMITS, ...limits };
    this.#clock = clock;
    channel.onFrame = (frame) => !this.isDead && this.#received(frame);
    channel.onClose = (reason) => this.kill(reason);
    this.#watch();
  }

  get isEmpty() {
    return this.#components.size === 0;
  }

  /** URLs of its components. */
  get urls() {
    return [...this.#components.keys()];
  }

  /**
   * Start a component.
   *
   * @param component {url, kind: "stub" | "hyperty", domain, sourceCode, config, onMessage(message,
   *   isInbound), onDeath(reason), mayReport(address), mayPost(message): what a stub may say besides,
   *   faultOf(message): what is wrong with what a stub brings in, as #judged says}
   * @throws LoadError
   */
  async create(component) {
    const { url, sourceCode, config } = component;
    if (this.isDead) throw new LoadError(503, "The sandbox has ended.");
    if (this.#components.has(url)) throw new LoadError(500, `Instance ${url} already exist!`);
    this.#components.set(url, component);
    const body = await this.#command(
      "create",
      { url, sourceCode, config },
      this.#limits.startTime,
      "The component did not start in time.",
    );
    if (codeOf(body) !== 200) {
      if (this.#components.get(url) === component) this.#components.delete(url);
      throw new LoadError(codeOf(body), body.desc ?? "The component cannot be started.");
    }
  }

  /** Have a component disconnect, and end it. */
  async delete(url) {
    if (!this.#components.has(url)) throw new LoadError(500, `Instance ${url} does not exist!`);
    const body = await this.#command(
      "delete",
      { url },
      this.#limits.deleteTime,
      "The component did not end in time.",
    );
    this.#components.delete(url);
    if (codeOf(body) !== 200) throw new LoadError(codeOf(body), body.desc);
  }

  /** Have a component run one of its methods. */
  execute(url, method, ...params) {
    return this.#command(
      "execute",
      { url, method, params },
      this.#limits.startTime,
      `${method}() did not return in time.`,
    );
  }

  /** Hand a message to a component. False if it finds no room: it was not handed on. */
  post(url, message) {
    if (this.isDead) return false;
    return this.#send({ url, message });
  }

  kill(reason = "The sandbox was ended.") {
    if (this.isDead) return;
    this.isDead = true;
    this.#clock.clearTimeout(this.#timer);
    this.#channel.kill();
    for (const resolve of [...this.#commands.values()]) resolve(errorBody(503, reason));
    const components = [...this.#components.values()];
    this.#components.clear();
    for (const { onDeath } of components) onDeath?.(reason);
    this.onEnd?.();
  }

  // --- to the sandbox -----------------------------------------------------------------------------

  async #command(type, body, milliseconds, text) {
    const id = ++this.#ids;
    const answer = new Promise((resolve) => this.#commands.set(id, resolve));
    this.#send({ message: { id, type, from: EXTERNAL, to: INTERNAL, body } });
    try {
      return await limited(answer, milliseconds, () => new LoadError(504, text), this.#clock);
    } catch (error) {
      this.kill(error.message);
      throw error;
    } finally {
      this.#commands.delete(id);
    }
  }

  #send(frame) {
    const size = roughSize(frame.message);
    if (this.#unread && this.#unread + size > this.#limits.maxUnread) {
      if (this.#pingedAt && this.#clock.now() - this.#pingedAt > this.#limits.readTime / 5)
        this.kill("It does not read its port.");
      return false;
    }
    this.#channel.send(frame);
    this.#unread += size;
    if (!this.#pingedAt && this.#unread > this.#limits.pingAfter) this.#ping();
    return true;
  }

  #ping() {
    this.#pingedAt = this.#clock.now();
    this.#unreadAtPing = this.#unread;
    this.#channel.send({ ping: ++this.#pings });
  }

  #watch() {
    const { pingEvery, readTime } = this.#limits;
    this.#timerDue = this.#clock.now() + pingEvery;
    this.#timer = this.#clock.setTimeout(() => {
      const now = this.#clock.now();
      const wasHeldUp = now - this.#timerDue > pingEvery / 2;
      if (this.#pingedAt && wasHeldUp) this.#pingedAt = now;
      else if (this.#pingedAt && now - this.#pingedAt >= readTime) {
        this.kill("It does not read its port.");
        return;
      }
      if (!this.#pingedAt) this.#ping();
      this.#watch();
    }, pingEvery);
  }

  // --- from the sandbox ---------------------------------------------------------------------------

  #received(frame) {
    if (frame === null || typeof frame !== "object") this.#core.count("stub.malformed");
    else if (frame.pong !== undefined) this.#ponged(frame.pong);
    else if (frame.url !== undefined) this.#posted(frame.url, frame.message);
    else if (frame.dropped !== undefined) this.#core.count("sandbox.throttled");
    else if (frame.message?.to === EXTERNAL)
      this.#commands.get(frame.message.id)?.(frame.message.body ?? {});
    else this.#core.count("stub.malformed");
  }

  #ponged(number) {
    if (number !== this.#pings || !this.#pingedAt) return;
    this.#pingedAt = 0;
    this.#unread -= this.#unreadAtPing;
    if (this.#unread > this.#limits.pingAfter) this.#ping();
  }

  #posted(url, message) {
    const component = this.#components.get(url);
    if (
      !component ||
      message === null ||
      typeof message !== "object" ||
      typeof message.type !== "string"
    ) {
      this.#core.count("stub.malformed");
      return;
    }
    const problem = this.#judged(component, message);
    if (problem === "ignored") this.#core.count("stub.ignored");
    else if (problem) this.#refuse(url, message, ...problem);
    else {
      try {
        component.onMessage(message, component.kind === "stub" && message.from !== url);
      } catch (error) {
        this.#refuse(url, message, error instanceof RangeError ? 413 : 400, error.message);
      }
    }
  }

  /** undefined, "ignored", or [code, text] of the refusal. */
  #judged({ url, kind, mayReport, mayPost, faultOf }, message) {
    const { from, to } = message;
    const all = Array.isArray(to) ? to : [to];
    if (
      typeof from !== "string" ||
      !from ||
      !all.length ||
      !all.every((each) => typeof each === "string" && each)
    ) {
      return [400, "A message needs id, type, from and to."];
    }
    if (kind === "hyperty") {
      const isOwn = from === url || from.startsWith(`${url}/`) || mayReport?.(from);
      return isOwn ? undefined : [403, `${from} is not of this sandbox.`];
    }
    const isStatus = all.some((each) => each.endsWith("/status"));
    if (from === url)
      return isStatus && all.some((each) => each !== `${url}/status`) ? "ignored" : undefined;
    if (isStatus && all.includes(`${url}/status`)) return "ignored";
    if (mayPost?.(message)) return undefined;
    if (this.#core.isLocal(from))
      return [403, `${from} is of this runtime: a stub cannot speak as it.`];
    return faultOf?.(message);
  }

  #refuse(url, message, code, text) {
    this.#core.count(code === 403 ? "stub.forged" : "stub.malformed");
    if (
      typeof message.from !== "string" ||
      !isAnswerable({ type: message.type, to: String(message.to) })
    )
      return;
    this.post(url, answerTo({ ...message, to: String(message.to) }, errorBody(code, text)));
  }
}
