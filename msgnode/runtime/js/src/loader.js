/**
 * The loader: protocol on the fly. From a domain's name to a stub that listens on the bus.
 *
 *   1 descriptor    from the catalogue, all fields checked         4 sandbox   of the domain, or a new one
 *   2 source        inline, or from the descriptor's host          5 listeners for its status and its URL
 *   3 digest, signature                                            6 the start; then what has waited goes out
 *
 * Rules
 * - Nothing of a stub runs before 1 to 3 are done. The whole takes 20 s at most.
 * - A stub that has started takes messages, whether it says so or not: some say nothing before the first.
 * - A load that fails is tried again when a message comes after 5 s, doubling to 5 min. So is a stub that
 *   has something to do and is not live within 30 s (live-watch.js).
 * - A stub whose sandbox died is started again after 1 s, doubling to 60 s, under the same URL;
 *   requests it had not answered are answered 503.
 * - A stub that was started anew has a session of its own: what the node held for the one before is
 *   subscribed again, and `gap` is told. The home stub connects by itself if it was live before.
 * - A new version is loaded beside the old one and takes over when nothing is unanswered, after 30 s at
 *   the latest; the old one is then asked to disconnect.
 * - A stub that is not needed any more is disconnected and its sandbox ended.
 */

import { backOff, limited, systemClock } from "./clock.js";
import { digestOf } from "./digest.js";
import { LoadError } from "./errors.js";
import { newId } from "./ids.js";
import { faultOfForeign } from "./inbound.js";
import { LiveWatch } from "./live-watch.js";
import { withoutMarks } from "./messages.js";
import { StubEntry, announce } from "./stub-list.js";
import { StubSources } from "./stub-sources.js";

const TIMES = Object.freeze({
  loadTime: 20_000, // ms for a whole load
  liveTime: 30_000, // ms until a stub that has something to do is live
  leastRetry: 5_000, // ms after a failed load, doubling
  mostRetry: 300_000,
  leastRestart: 1_000, // ms after a sandbox has died, doubling
  mostRestart: 60_000,
  idleHome: 600_000, // ms
  idleAbroad: 60_000, // ms
  versionEvery: 900_000, // ms between two looks at the catalogue
  switchTime: 30_000, // ms until a new version takes over at the latest
});

export class Loader {
  #bus;
  #catalogue;
  #sandboxes;
  #stubs;
  #options;
  #times;
  #clock;
  #liveWatch;
  #timers = new Set();
  #isClosed = false;
  /** Where descriptors and sources come from. */
  sources;
  /** Loads that run. */
  loads = 0;

  /**
   * @param parts {bus, catalogue, sandboxes, stubs}
   * @param options {runtimeURL, homeDomain, platform, capabilities, hosts: domain to more hosts of its
   *   `configuration.url`, digests: domain to integrity, signers: domain to public keys, stubConfig:
   *   domain to configuration that wins over the descriptor's, times, clock, onStatus(entry, body)}
   */
  constructor({ bus, catalogue, sandboxes, stubs }, options) {
    this.#bus = bus;
    this.#catalogue = catalogue;
    this.#sandboxes = sandboxes;
    this.#stubs = stubs;
    this.#options = options;
    this.sources = new StubSources(catalogue, options);
    this.#times = { ...TIMES, ...options.times };
    this.#clock = options.clock ?? systemClock;
    this.#liveWatch = new LiveWatch(this.#times.liveTime, this.#clock, (entry) =>
      this.#notLive(entry),
    );
    this.#later(this.#times.idleAbroad / 2, () => this.#lookForIdle());
    this.#later(this.#times.versionEvery, () => this.#lookForVersions());
  }

  /** Load an entry's stub; resolves, and never rejects, when it is there or has failed. */
  load(entry) {
    if (entry.loading) return entry.loading;
    this.loads += 1;
    entry.loading = this.#load(entry).finally(() => {
      this.loads -= 1;
      entry.loading = null;
    });
    return entry.loading;
  }

  /** Have a stub connect; `identity` is handed to it. */
  connect(entry, ...identity) {
    if (entry.status === "failed") entry.status = "in-progress";
    this.expectLive(entry);
    return entry.sandbox?.execute(entry.url, "connect", ...identity).catch(() => {});
  }

  /** A stub has something to do: it has to be live in time, or to say that it cannot be. */
  expectLive(entry) {
    this.#liveWatch.expect(entry);
  }

  /** A stub was not live in time: it is as one that cannot be loaded. */
  #notLive(entry) {
    const { sandbox, domain } = entry;
    const text = `it was not live within ${this.#times.liveTime / 1000} s.`;
    this.#bus.report("stub.not-live", {
      error: new LoadError(504, `The stub of ${domain}: ${text}`),
    });
    this.#failed(entry, { sandbox }, new LoadError(504, text));
    this.#refuseOpen(entry, entry.desc);
  }

  /** Disconnect a stub and forget it. */
  async unload(entry, text = `The stub of ${entry.domain} was unloaded.`) {
    this.#stubs.remove(entry);
    entry.cancel?.(text);
    await this.#stop(entry, text);
  }

  /** Unload everything. */
  async close() {
    this.#isClosed = true;
    this.#liveWatch.close();
    this.#catalogue.close();
    for (const timer of this.#timers) this.#clock.clearTimeout(timer);
    await Promise.all([...this.#stubs].map((entry) => this.unload(entry, "The runtime closes.")));
  }

  // --- a load -----------------------------------------------------------------------------------------

  async #load(entry) {
    const attempt = { isOver: false, sandbox: null };
    if (this.#isClosed) {
      this.#failed(entry, attempt, new LoadError(503, "The runtime closes."));
      return;
    }
    const cancelled = new Promise(
      (_, reject) => (entry.cancel = (text) => reject(new LoadError(503, text))),
    );
    entry.isLoading = true;
    entry.url ||=
      entry.kind === "idp"
        ? `domain-idp://${entry.domain}/stub/${newId()}`
        : `runtime://${entry.domain}/protostub/${newId()}`;
    this.#enter(entry, "deploying");
    const late = () =>
      new LoadError(504, `The stub of ${entry.domain} could not be loaded in time.`);
    try {
      await limited(
        Promise.race([this.#steps(entry, attempt), cancelled]),
        this.#times.loadTime,
        late,
        this.#clock,
      );
      if (entry.kind === "idp") entry.failures = 0; // any other has to be live for that
      if (!entry.wasLive || !entry.sandbox) return;
      if (this.#isHome(entry)) this.#connectAgain(entry);
      this.#announce(entry);
    } catch (error) {
      attempt.isOver = true;
      this.#failed(entry, attempt, error);
    }
  }

  async #steps(entry, attempt) {
    this.#sandboxes.prepare(entry);
    const { descriptor, descriptorURL, source } = await this.sources.fetch(entry);
    if (attempt.isOver || this.#isClosed) return;
    entry.digest = await digestOf(source);
    const sandbox = await this.#sandboxes.open(entry, descriptor);
    if (attempt.isOver) {
      this.#sandboxes.release(sandbox); // it came too late
      return;
    }
    attempt.sandbox = sandbox;
    entry.descriptor = descriptor;
    entry.descriptorURL = descriptorURL;
    entry.sandbox = attempt.sandbox;
    await this.#start(entry, attempt, source);
  }

  async #start(entry, attempt, sourceCode) {
    const { kind, domain, url, sandbox } = entry;
    this.#drop(entry);
    entry.listeners.push(
      this.#bus.addListener(`${url}/status`, (message) => {
        if (message.from === url) this.#status(entry, message.body ?? {});
      }),
      this.#bus.addListener(url, (message) => {
        if (!sandbox.post(url, message))
          this.#bus.refuse(message, 503, `The stub of ${domain} takes no more messages.`);
      }),
    );
    const { runtimeURL, stubConfig = {}, WebSocket } = this.#options;
    await sandbox.create({
      url,
      kind: "stub",
      domain: entry.descriptor.interworking ? "" : domain,
      sourceCode,
      config: {
        ...entry.descriptor.configuration,
        ...(sandbox.isOwn && WebSocket ? { WebSocket } : {}), // no class goes into a sandbox, which has the core connect
        ...stubConfig[domain],
        runtimeURL,
        ...(kind === "idp" ? { domain } : {}),
      },
      faultOf: (message) =>
        this.#isHome(entry) ? undefined : faultOfForeign(message, entry, this.#bus.resolver),
      onMessage: (message, isInbound) => this.#posted(entry, message, isInbound),
      onDeath: (reason) => entry.sandbox === sandbox && this.#died(entry, reason),
    });
    if (attempt.isOver) return;
    if (entry.status === "deploying") this.#enter(entry, "deployed"); // it has not said `created` by itself
    this.#release(entry);
  }

  /** A change of state that is the runtime's own to tell. */
  #enter(entry, status) {
    entry.status = status;
    this.#options.onStatus?.(entry, { value: status });
  }

  #release(entry) {
    entry.isLoading = false;
    for (const message of entry.takeAll()) {
      if (this.#bus.resolver.admit(entry, message)) this.#bus.forward(entry.url, message);
    }
  }

  #failed(entry, { sandbox }, error) {
    if (!(error instanceof LoadError)) this.#bus.report("load.failed", { error });
    this.#drop(entry);
    if (sandbox) {
      const gone = () => this.#sandboxes.release(sandbox);
      sandbox.delete(entry.url).then(gone, gone);
    }
    entry.sandbox = null;
    entry.isLoading = false;
    this.#bus.report("loads.failed", { error, isQuiet: true });
    entry.failures += 1;
    entry.retryAt =
      this.#clock.now() + backOff(entry.failures, this.#times.leastRetry, this.#times.mostRetry);
    entry.status = "deployment-failed";
    entry.code = error.code ?? 502;
    entry.desc = `The stub of ${entry.domain} is not available: ${error.message}`;
    this.#options.onStatus?.(entry, { value: "deployment-failed", desc: entry.desc });
    this.#bus.resolver.giveUp(entry);
  }

  // --- a loaded stub ----------------------------------------------------------------------------------

  #posted(entry, message, isInbound) {
    if (!isInbound) {
      this.#bus.postMessage(message);
      return;
    }
    this.#liveWatch.forget(entry);
    const isHome = this.#isHome(entry);
    if (
      !isHome &&
      message.type.toLowerCase() === "response" &&
      !this.#bus.isExpected(message, entry.url)
    ) {
      this.#bus.unclaimed(message);
      return;
    }
    entry.received(message, this.#clock.now());
    this.#bus.postFrom(entry.url, isHome ? message : withoutMarks(message));
  }

  /** Note a status event. */
  #status(entry, body) {
    const state = entry.enter(body.value, body.desc);
    this.#options.onStatus?.(entry, body);
    if (state === "failed") entry.retryAt = this.#clock.now() + this.#times.leastRetry;
    if (state === "live") {
      entry.liveSince = this.#clock.now();
      entry.wasLive = true;
      entry.failures = 0;
    }
    if (!entry.isGettingLive) this.#liveWatch.forget(entry);
  }

  #died(entry, reason) {
    const now = this.#clock.now();
    this.#drop(entry);
    entry.sandbox = null;
    if (entry.isLoading) return; // the load reports it
    this.#bus.report("sandbox.ended", { isQuiet: true });
    entry.enter("disconnected", reason);
    this.#options.onStatus?.(entry, { value: "disconnected", desc: reason });
    this.#refuseOpen(entry, `The stub of ${entry.domain} ended: ${reason}`);
    if (entry.liveSince && now - entry.liveSince > this.#times.mostRestart) entry.deaths = 0;
    entry.deaths += 1;
    entry.isLoading = true; // what comes meanwhile waits
    const delay = backOff(entry.deaths, this.#times.leastRestart, this.#times.mostRestart);
    // Who could not wait may have had it loaded already.
    this.#later(
      delay,
      () => this.#stubs.get(entry.key) === entry && entry.isLoading && this.load(entry),
    );
  }

  async #stop(entry, text) {
    const { sandbox, url } = entry;
    this.#liveWatch.forget(entry);
    for (const message of entry.takeAll()) this.#bus.refuse(message, 503, text);
    if (sandbox) await sandbox.delete(url).catch(() => {});
    entry.sandbox = null;
    this.#drop(entry);
    if (sandbox) this.#sandboxes.release(sandbox);
    this.#refuseOpen(entry, text);
  }

  #refuseOpen(entry, text) {
    for (const { message } of entry.open.values()) this.#bus.refuse(message, 503, text);
    entry.open.clear();
  }

  #drop(entry) {
    this.#liveWatch.forget(entry);
    for (const item of entry.listeners.splice(0)) item.remove();
  }

  // --- what happens by itself ---------------------------------------------------------------------------

  #later(milliseconds, call) {
    if (this.#isClosed) return;
    const timer = this.#clock.setTimeout(() => {
      this.#timers.delete(timer);
      call();
    }, milliseconds);
    this.#timers.add(timer);
  }

  #lookForIdle() {
    const now = this.#clock.now();
    const { idleHome, idleAbroad } = this.#times;
    for (const entry of this.#stubs) {
      const since = now - (entry.domain === this.#options.homeDomain ? idleHome : idleAbroad);
      if (entry.isIdle(since, now) && entry.status !== "deployment-failed") this.unload(entry);
      else if (entry.status === "deployment-failed" && now > entry.retryAt + this.#times.mostRetry)
        this.#stubs.remove(entry);
    }
    this.#later(idleAbroad / 2, () => this.#lookForIdle());
  }

  async #lookForVersions() {
    for (const entry of this.#stubs) {
      if (!entry.sandbox || entry.isLoading) continue;
      const version = await this.#catalogue.version(entry.descriptorURL).catch(() => undefined);
      if (
        version !== undefined &&
        version !== entry.descriptor?.version &&
        (await this.#isNewer(entry))
      )
        await this.renew(entry);
    }
    this.#later(this.#times.versionEvery, () => this.#lookForVersions());
  }

  /** Whether the catalogue has another version indeed: it may not agree with itself. */
  async #isNewer(entry) {
    const now = await this.sources
      .fetch(entry)
      .catch((error) => this.#bus.report("version.refused", { error }));
    return now !== undefined && now.descriptor.version !== entry.descriptor?.version;
  }

  /** Load the version that the catalogue has now beside an entry's stub, and let it take over. */
  async renew(entry) {
    const newer = new StubEntry(entry, this.#clock.now());
    newer.held = entry.held;
    await this.load(newer);
    if (newer.status === "deployment-failed") {
      this.#bus.report("version.refused", { error: new LoadError(newer.code, newer.desc) });
      return;
    }
    const until = this.#clock.now() + this.#times.switchTime;
    while (entry.open.size && this.#clock.now() < until && !this.#isClosed) {
      await new Promise((resolve) =>
        this.#later(Math.min(200, this.#times.switchTime / 10), resolve),
      );
    }
    if (this.#isClosed || this.#stubs.get(entry.key) !== entry || !newer.sandbox) {
      await this.#stop(newer, "The stub was replaced.");
      return;
    }
    this.#stubs.add(newer); // from here on messages go to it
    if (entry.wasLive) this.#connectAgain(newer); // before a message has it connect as nobody
    await this.#stop(entry, "The stub was replaced by a newer version.");
    this.#announce(newer);
  }

  /** A stub follows one that was live. The user's identity is for the home domain alone. */
  #connectAgain(entry) {
    const identity = this.#isHome(entry) ? this.#options.identity?.() : undefined;
    this.connect(entry, ...(identity === undefined ? [] : [identity]));
  }

  /** What the node held for the stub before, whose session is gone, is subscribed again. */
  #announce(entry) {
    if (!entry.held.size) return;
    const gap = (desc) => this.#options.onStatus?.(entry, { value: "gap", desc });
    announce(entry.held, this.#bus, gap);
    gap("The stub was started anew, with a session of its own.");
  }

  #isHome({ kind, key }) {
    return kind === "domain" && key === this.#options.homeDomain;
  }
}
