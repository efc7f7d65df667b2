/**
 * A runtime, wired: the MessageBUS, the resolver and what it needs, sandboxes, policies, an identity.
 *
 *   const runtime = new Runtime({ domain: "example.org" });
 *   await runtime.logIn();                                  // the home domain's stub connects
 *   const me = await runtime.hyperty("me", { handlers: (value) => value }); // others reach it now
 *   const answer = await me.request(address, "hello");
 *   await runtime.close();
 *
 * Rules
 * - The home domain's stub connects at log-in; a foreign one with the first message to its domain.
 * - What stubs say of themselves is repeated as an `update` of the runtime to `<runtime URL>/status`,
 *   `resource` naming the stub; being on line and off line is told there too.
 * - close() tells the hyperties, disconnects all stubs and leaves no timer, socket or sandbox behind.
 */

import { domainOf } from "./addresses.js";
import { checkFunction, checkOptions, checkText } from "./arguments.js";
import { Catalogue } from "./catalogue.js";
import { limited, systemClock } from "./clock.js";
import { LoadError } from "./errors.js";
import { Hyperties } from "./hyperties.js";
import { newId } from "./ids.js";
import { Loader } from "./loader.js";
import { MessageBus } from "./messagebus.js";
import { AnswerError } from "./bus.js";
import { errorBody } from "./messages.js";
import { MiniBus } from "./minibus.js";
import { Resolver } from "./resolver.js";
import { Sandboxes } from "./sandbox/sandboxes.js";
import { StubList } from "./stub-list.js";
import { NodeSubscriptions } from "./syncher/node-subscriptions.js";
import { Registrations } from "./syncher/registrations.js";

const KEY = "msgnode.runtime-url";
const HANDLER_KEY = "msgnode.p2p-handler";
const CLOSE_TIME = 3_000; // ms that hyperties have when the runtime closes
const REGISTRY = /^domain:\/\/registry\.([^/]+)\/?$/i;

/** The version of this package: that of package.json. */
export const VERSION = "1.0.0";

export class Runtime {
  #options;
  #platform;
  #loader;
  #sandboxes;
  #hyperties = new Map(); // url -> {listen, remove}
  #node; // what is claimed there
  #registrations;
  #syncManager;
  #objects = null; // the SyncManager, once it was loaded
  #logIn = null; // once somebody has logged in
  #identityListeners = new Set();
  #graph = null;
  #named;
  #used = []; // of each part that is loaded when it is used: its promise
  #p2pThere;
  #isClosed = false;
  /** Direct connections, once they are there; null without them. */
  p2p = null;
  #attach = (hyperty, address) => this.#hyperties.get(hyperty)?.listen(address);
  #onLine = () => this.#tell({ value: "online" });
  #offLine = () => this.#tell({ value: "offline" });

  /**
   * @param options see index.d.ts; `domain` is needed
   * @param platform {name, capabilities, prepare, openChannel, loadOwn, close}
   */
  constructor(options, platform) {
    checkOptions(options);
    this.#options = options;
    this.#platform = platform;
    const { clock = systemClock, limits = {} } = options;
    this.domain = options.domain.toLowerCase();
    this.url = options.runtimeURL ?? this.#keptURL();
    this.bus = new MessageBus(this.url, { ...options, clock });
    this.stubs = new StubList();
    this.catalogue = new Catalogue(this.domain, { ...options, platform: platform.name, clock });
    const core = {
      isLocal: (address) => this.bus.isLocal(address),
      count: (reason) => this.bus.report(reason, { isQuiet: true }),
    };
    const { sandbox = "own" } = options;
    this.#sandboxes = new Sandboxes(core, {
      isOwn: (domain) => sandbox === "own" && domain === this.domain,
      prepare: () => platform.prepare?.(),
      openChannel: (request) => platform.openChannel(request),
      loadOwn: (source, { script = this.#ownScript() } = {}) => platform.loadOwn(source, script),
      limits,
      clock,
    });
    this.#loader = new Loader(
      { bus: this.bus, catalogue: this.catalogue, sandboxes: this.#sandboxes, stubs: this.stubs },
      {
        ...options,
        runtimeURL: this.url,
        homeDomain: this.domain,
        platform: platform.name,
        capabilities: options.capabilities ?? platform.capabilities,
        clock,
        identity: () => this.#logIn?.identity,
        onStatus: (entry, { value, desc }) => {
          this.#tell({ value, desc, resource: entry.url || entry.key });
          if (entry.key === this.domain && ["in-progress", "failed"].includes(value))
            this.#logIn?.renewIfEnded();
        },
      },
    );
    this.resolver = new Resolver(this.bus, this.#loader, this.stubs, {
      ...options,
      homeDomain: this.domain,
      clock,
    });
    this.bus.resolver = this.resolver;
    if (options.registries) this.resolver.registries = this.#newRegistries(options.registries);
    this.#node = new NodeSubscriptions(this.bus, this.#attach);
    this.#registrations = new Registrations(this.bus, this.domain);
    const part = (load, ...names) => this.#part(load, names);
    this.#syncManager = part(() => this.#newSyncManager(), "receive");
    this.bus.addListener(`${this.url}/sm`, (message) => {
      if (message.type !== "response") this.#orRefuse(this.#syncManager.receive(message), message);
    });
    this.#named = new Hyperties({
      bus: this.bus,
      domain: this.domain,
      resolver: this.resolver,
      registrations: this.#registrations,
      add: (address) => this.addHyperty(address),
      claim: (address) => this.#node.claim(address),
      unclaim: (address) => this.#node.unclaim(address),
      kept: (...asked) => this.#kept(...asked),
      user: () => this.user,
      p2p: () => this.p2p,
      whyNoP2P: () => this.#whyNoP2P(),
    });
    const newQos = async () => new (await import("./qos.js")).Qos(this);
    this.qos = part(newQos, "inquire", "reserve", "reservations", "iceServers");
    this.invitations = part(() => this.#newInvitations(), "receive", "send", "stop");
    this.#p2pThere = this.#loadPeerToPeer();
    this.#p2pThere.catch(() => {}); // told to who logs in
    globalThis.addEventListener?.("online", this.#onLine);
    globalThis.addEventListener?.("offline", this.#offLine);
  }

  /** The version of this package. */
  get version() {
    return VERSION;
  }

  /** What was dropped, refused or reported, by reason. */
  get counters() {
    return this.bus.counters;
  }

  /**
   * What the domain of bob@example.org, or of a user URL, asserts of him.
   *
   * No code of the domain runs for that. As long as the card is good, the domain's stub is loaded only if its code
   * is what the card names.
   *
   * @returns {userURL, domain, endpoint, hyperty, protostub, digests, expires, claims}
   * @throws CardError: there is none, or it proves nothing; nothing has changed then
   */
  async cardOf(user) {
    const { cardOf } = await import("./cards.js");
    const card = await cardOf(user, this.catalogue);
    if (card.digests.length && card.domain !== this.domain)
      this.#loader.sources.expect(card.domain, card.digests, card.expires);
    return card;
  }

  /** A promise of the Graph Connector, whose code is loaded when it is first asked for. */
  get graph() {
    this.#graph ??= this.#newGraph();
    return this.#graph;
  }

  /** The user URL of who is logged in, "" for nobody. */
  get user() {
    return this.#logIn?.user ?? "";
  }

  /**
   * Load the home domain's stub and have it connect. Resolves with its entry once it is live.
   *
   * @param identity openid({…}), {accessToken}, {idToken}, or {assertion, idp}; without it nobody logs in
   * @throws TypeError for another shape, OpenIdError if nobody logs in, LoadError if the stub cannot be loaded or does not
   *   become live in time, AnswerError if the node does not accept the identity
   */
  async logIn(identity) {
    await this.#p2pThere;
    if (identity !== undefined && identity !== null) this.#logIn ??= await this.#newLogIn();
    const shown = await this.#logIn?.take(identity);
    const entry = await this.connect(this.domain, shown);
    await this.#logIn?.accepted();
    await this.p2p?.start();
    return entry;
  }

  /** Log out: the session ends, and what it held; the next message or logIn() opens another. */
  async logOut() {
    await this.#logIn?.end();
    const entry = this.stubs.get(this.domain);
    if (entry) await this.#loader.unload(entry, "The user has logged out.");
  }

  /** Hear of the log-in: {state: "logged-in", "renewed", "expired", "failed", "logged-out", user, expires?, error?}. */
  onIdentity(listener) {
    checkFunction("listener", listener);
    this.#identityListeners.add(listener);
    return { remove: () => this.#identityListeners.delete(listener) };
  }

  /** Load a domain's stub without a message, and have it connect. */
  async connect(domain, identity) {
    const entry = this.resolver.entryFor({ kind: "domain", key: domain, domain });
    if (!entry)
      throw new LoadError(503, `Too many domains are in use or being looked up; ${domain} is not.`);
    if (entry.isLoading) await this.#loader.load(entry);
    if (entry.status === "deployment-failed") throw new LoadError(entry.code, entry.desc);
    const settled = this.#settled(entry);
    this.#loader.connect(entry, ...(identity === undefined ? [] : [identity]));
    await settled;
    return entry;
  }

  /** Look for a newer version of a domain's stub now, and let it take over. */
  async renew(domain) {
    const entry = this.stubs.get(domain);
    if (entry && !entry.isLoading) await this.#loader.renew(entry);
  }

  /**
   * A hyperty that others can reach: its address is claimed at the node, registered, and both are kept alive.
   *
   * @param name letters, digits, _, . and -: its address is kept by it
   * @param options {handlers: a function of (value, message), or functions by type of message, whose results are the
   *   answers; register: true, false, or the user to register it for; resources, dataSchemes: what it offers;
   *   p2p: ask for channels; url: an address of one's own}
   * @returns Hyperty {url, request(to, value), send(to, value), on(type, handler), close()}
   * @throws TypeError, AnswerError: which step failed, and why
   */
  async hyperty(name, options) {
    await this.#p2pThere;
    return this.#named.make(name, options);
  }

  /** The addresses of a user's hyperties that can be reached now. @param criteria {user, resources, dataSchemes} */
  find(criteria) {
    return this.#named.find(criteria);
  }

  /** What the runtime does about an address: {isHere, isClaimed, isRegistered, stub, way, why}. */
  explain(address, from) {
    return this.#named.explain(address, from);
  }

  /** What there is in this runtime now, as JSON: RuntimeState of index.d.ts. */
  state() {
    const { url: runtime, domain, user, bus, stubs, p2p } = this;
    return {
      runtime,
      domain,
      user,
      hyperties: this.#named.listed(),
      routes: [...stubs].map(routeOf),
      sandboxes: [...this.#sandboxes].map(({ key, urls }) => ({ name: key, components: urls })),
      channels: p2p?.connections ?? [],
      whyNoChannels: p2p ? "" : this.#whyNoP2P(),
      errors: bus.errors.map((each) => ({ ...each })),
      counters: { ...bus.counters },
    };
  }

  #whyNoP2P() {
    return this.#options.p2p
      ? "this platform has no WebRTC: RTCPeerConnection gives it one."
      : "the runtime has no option p2p.";
  }

  /**
   * A hyperty of which only this runtime knows, until its address is claimed: its own MiniBUS, joined with the
   * MessageBUS at its URL.
   *
   * @param url such as hyperty://<domain>/<guid>; made if it is not given
   * @returns {url, bus, runtimeURL, listen(address): hear an address beside its own, remove()}
   * @throws LoadError 500: there is one with this URL
   */
  addHyperty(url = `hyperty://${this.domain}/${newId()}`) {
    checkText("url", url);
    this.#refuseTwice(url);
    const bus = new MiniBus((message) => this.bus.postMessage(message), {
      clock: this.#options.clock,
      errors: this.bus.errors,
    });
    const items = [];
    const listen = (address) => {
      const item = this.bus.addListener(address, (message) => bus.receive(message));
      items.push(item);
      return item;
    };
    listen(url);
    const remove = () => {
      this.#hypertyGone(url);
      items.forEach((item) => item.remove());
      bus.close();
      this.bus.removeAllListenersOf(url);
      this.#hyperties.delete(url);
    };
    this.#hyperties.set(url, { listen, remove });
    return { url, bus, runtimeURL: this.url, listen, remove };
  }

  /**
   * A hyperty in a sandbox, from its source: a module like a stub's, activate(url, bus, config).
   *
   * @returns {url, remove()}
   * @throws LoadError
   */
  async deployHyperty(sourceCode, config = {}, url = `hyperty://${this.domain}/${newId()}`) {
    this.#refuseTwice(url);
    const sandbox = await this.#sandboxes.openForHyperty(domainOf(url));
    this.#refuseTwice(url); // one that was deployed meanwhile is in this sandbox
    const items = [];
    const listen = (address) => {
      const item = this.bus.addListener(address, (message) => {
        if (!sandbox.post(url, message))
          this.bus.refuse(message, 503, `${url} takes no more messages.`);
      });
      items.push(item);
      return item;
    };
    listen(url);
    const gone = () => {
      this.#hypertyGone(url);
      items.forEach((item) => item.remove());
      this.bus.removeAllListenersOf(url);
      this.#hyperties.delete(url);
    };
    const remove = async () => {
      gone();
      await sandbox.delete(url).catch(() => {});
      this.#sandboxes.release(sandbox);
    };
    this.#hyperties.set(url, { listen, remove });
    try {
      await sandbox.create({
        url,
        kind: "hyperty",
        domain: domainOf(url),
        sourceCode,
        config: { ...config, runtimeURL: this.url },
        mayReport: (address) => this.#objects?.mayReport(url, address) ?? false,
        onMessage: (message) => this.bus.postMessage(message),
        onDeath: (reason) => {
          gone();
          this.bus.report("hyperty.died", { error: new Error(`${url}: ${reason}`) });
        },
      });
    } catch (error) {
      gone();
      this.#sandboxes.release(sandbox);
      throw error;
    }
    return { url, remove };
  }

  #hypertyGone(url) {
    this.#objects?.hypertyGone(url);
    this.#node.forget(url);
  }

  #refuseTwice(url) {
    if (this.#hyperties.has(url)) throw new LoadError(500, `Instance ${url} already exist!`);
  }

  /** End everything: hyperties are told and have 3 s, stubs disconnect, sandboxes end. */
  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    globalThis.removeEventListener?.("online", this.#onLine);
    globalThis.removeEventListener?.("offline", this.#offLine);
    await Promise.all([...this.#hyperties.keys()].map((url) => this.#closeHyperty(url)));
    await Promise.all(
      this.#used.map((used) =>
        used()
          ?.then((part) => part.close?.())
          .catch(() => {}),
      ),
    );
    this.#logIn?.stop();
    this.#registrations.close();
    this.#node.close();
    await this.#p2pThere.catch(() => {});
    await this.p2p?.close();
    await this.#loader.close();
    this.#sandboxes.close();
    this.#platform.close?.();
    this.bus.close();
  }

  async #closeHyperty(url) {
    const message = {
      type: "execute",
      from: `${this.url}/registry/`,
      to: url,
      body: { method: "close" },
    };
    const late = () => new AnswerError(errorBody(408, "no answer"), url);
    await limited(this.bus.request(message), CLOSE_TIME, late, this.#options.clock).catch(() => {});
    await this.#hyperties.get(url)?.remove();
  }

  /** Resolves when the stub of an entry is live; rejects if it fails or takes over 20 s. */
  #settled(entry) {
    if (entry.status === "live") return Promise.resolve();
    let item, closing;
    const live = new Promise((resolve, reject) => {
      closing = this.bus.onClose(() => reject(new LoadError(503, "The runtime closes.")));
      item = this.bus.addListener(`${entry.url}/status`, ({ from, body }) => {
        if (from !== entry.url) return;
        if (entry.status === "live") resolve();
        else if (entry.status === "failed")
          reject(new LoadError(503, body.desc ?? "The stub has failed."));
      });
    });
    const late = () => new LoadError(504, `The node of ${entry.domain} does not answer in time.`);
    return limited(live, 20_000, late, this.#options.clock).finally(() =>
      [item, closing].forEach((each) => each.remove()),
    );
  }

  #tell(body) {
    const said = Object.fromEntries(
      Object.entries(body).filter(([, value]) => value !== undefined),
    );
    this.bus.postMessage({ type: "update", from: this.url, to: `${this.url}/status`, body: said });
  }

  /** The runtime URL of the last start, or a new one where nothing can be kept. */
  #keptURL() {
    const start = `runtime://${this.domain}/`;
    return this.#kept(KEY, `${start}${newId()}`, (kept) => kept.startsWith(start));
  }

  // --- parts that are loaded when they are used -------------------------------------------------------

  #part(load, names) {
    const { part, used } = whenUsed(load, names);
    this.#used.push(used);
    return part;
  }

  /** Direct connections, where they are asked for and the platform has WebRTC; else `p2p` stays null. */
  async #loadPeerToPeer() {
    const { p2p, RTCPeerConnection = globalThis.RTCPeerConnection } = this.#options;
    if (!p2p || typeof RTCPeerConnection !== "function") return;
    const handlerId =
      p2p.handlerId ?? this.#kept(HANDLER_KEY, newId(), (kept) => /^[\w-]{1,64}$/.test(kept));
    const chosen = { ...p2p, handlerId };
    if (p2p.stubs === "catalogue") {
      const { CatalogueStubs } = await import("./p2p/catalogue-stubs.js");
      this.p2p = this.#newCatalogueStubs(CatalogueStubs, chosen);
    } else {
      const { PeerToPeer } = await import("./p2p/peer-to-peer.js");
      this.p2p = new PeerToPeer(this.resolver, chosen, { RTCPeerConnection, qos: this.qos });
    }
    this.bus.registeredWith = this.p2p.registration;
  }

  #newCatalogueStubs(CatalogueStubs, chosen) {
    const { resolver, catalogue } = this;
    const { name: platform, capabilities } = this.#platform;
    const parts = { resolver, catalogue, sandboxes: this.#sandboxes };
    return new CatalogueStubs(parts, chosen, {
      platform,
      capabilities: this.#options.capabilities ?? capabilities,
      signers: this.#options.signers,
    });
  }

  async #newSyncManager() {
    const { SyncManager } = await import("./syncher/sync-manager.js");
    const { bus, domain } = this;
    this.#objects = new SyncManager({
      bus,
      domain,
      attach: this.#attach,
      node: this.#node,
      registrations: this.#registrations,
      storage: this.#options.storage,
    });
    return this.#objects;
  }

  /** Registries that are asked over REST, for the resolver. */
  #newRegistries(registries) {
    const load = async () => {
      const { RestRegistries } = await import("./rest-registries.js");
      return new RestRegistries(this, { clock: systemClock, ...this.#options });
    };
    const asked = this.#part(load, ["take"]);
    const takes = (message) => {
      const domain = REGISTRY.exec(message.to)?.[1].toLowerCase();
      const isOne = domain !== undefined && message.type !== "response";
      if (!isOne || !Object.hasOwn(registries, domain)) return false;
      this.#orRefuse(asked.take(message, domain), message);
      return true;
    };
    return { takes };
  }

  #orRefuse(done, message) {
    done.catch((error) => this.bus.refuse(message, error.code ?? 503, error.message));
  }

  async #newLogIn() {
    const { LogIn } = await import("./log-in.js");
    const { bus, domain } = this;
    const show = (identity) => this.#loader.connect(this.stubs.get(domain), identity);
    return new LogIn({ bus, domain, listeners: this.#identityListeners, show });
  }

  async #newInvitations() {
    const { Invitations } = await import("./invitations.js");
    const { bus, url, domain, catalogue } = this;
    const parts = { bus, url, domain, catalogue, cardOf: (user) => this.cardOf(user) };
    return new Invitations(parts, (...said) => this.#loader.sources.expect(...said));
  }

  async #newGraph() {
    const [{ Contacts }, { GraphConnector }] = await Promise.all([
      import("./graph/contacts.js"),
      import("./graph/graph-connector.js"),
    ]);
    const onFailure = (text, error) =>
      this.bus.report("storage.failed", { error: new Error(text, { cause: error }) });
    const { storage } = this.#options;
    const kept = { key: `msgnode.contacts.${this.domain}`, storage, onFailure };
    return new GraphConnector(this.bus, this.url, new Contacts(kept));
  }

  /** What was kept by the last start, or something fresh. */
  #kept(name, fresh, isGood) {
    const { storage } = this.#options;
    if (!storage) return fresh;
    try {
      const key = `${name}.${this.domain}`;
      const kept = storage.getItem(key);
      if (kept && isGood(kept)) return kept;
      storage.setItem(key, fresh);
    } catch {
      // storage that is refused (private mode) keeps nothing
    }
    return fresh;
  }

  #ownScript() {
    return `${this.catalogue.baseOf(this.domain)}/.well-known/protocolstub/default.ps.js`;
  }
}

/** A stub, as state() tells of it. */
function routeOf({ key: to, domain, url: stub, status, desc, descriptor, queue, open, held }) {
  const version = String(descriptor?.version ?? "");
  const [waiting, unanswered, claims] = [queue.length, open.size, [...held.keys()]];
  return { to, domain, stub, status, desc, version, waiting, unanswered, claims };
}

/**
 * An object whose methods, all asynchronous, are those of what `load` makes when one is first called.
 *
 * @param load resolves with it; called again after a failure
 * @param names of the methods
 * @returns {part, used(): the promise of what was made, undefined if nothing was}
 */
function whenUsed(load, names) {
  let made;
  const get = () => {
    made ??= load().catch((error) => {
      made = undefined;
      if (!(error instanceof TypeError)) throw error; // else a module cannot be fetched
      throw new LoadError(503, `A part of the runtime cannot be loaded: ${error.message}`);
    });
    return made;
  };
  const part = {};
  for (const name of names) part[name] = async (...given) => (await get())[name](...given);
  return { part: Object.freeze(part), used: () => made };
}
