/**
 * Hyperties that others reach, and how one finds and reaches those of others.
 *
 *   const echo = await runtime.hyperty("echo", { register: "bob", handlers: { create: (value) => value } });
 *   const [bob] = await runtime.find({ user: "bob" });
 *   const answer = await echo.request(bob, "hello");
 *
 * Rules
 * - A hyperty listens before its address is claimed at the node, and is claimed before it is registered.
 * - Claim and registration are kept alive, and made again where the node has lost them, until close().
 * - Its address is kept in the runtime's storage by its name; where another tab holds it, this one gets another.
 * - A request is answered with what its handler returns, with the code of what it throws, or 405 where there is none.
 * - What cannot be reached says which step failed: explain() tells the same at any time.
 */

import { domainOf, isLegacy, parse, stubFor } from "./addresses.js";
import {
  checkAddress,
  checkBoolean,
  checkFunction,
  checkKeys,
  checkText,
  checkTexts,
  wrong,
} from "./arguments.js";
import { AnswerError } from "./bus.js";
import { newId } from "./ids.js";
import { answerTo, errorBody } from "./messages.js";
import { Refusal, answerInTime, askUntilAnswered } from "./syncher/talk.js";

const NAME = /^[\w.-]{1,64}$/;
const OPTIONS = ["handlers", "register", "resources", "dataSchemes", "p2p", "url"];
const KINDS = ["create", "read", "update", "delete", "subscribe", "unsubscribe", "execute"];
const TYPES = [...KINDS, "*"];

/** One hyperty; made by runtime.hyperty(). A Syncher takes it as it is. */
export class Hyperty {
  name;
  url;
  bus;
  runtimeURL;
  #hyperties;
  #handlers;
  #isP2P;

  constructor(hyperties, { name, url, bus, runtimeURL, handlers, p2p }) {
    Object.assign(this, { name, url, bus, runtimeURL });
    this.#hyperties = hyperties;
    this.#handlers = handlers;
    this.#isP2P = p2p;
    bus.addListener(url, (message) => this.#received(message));
  }

  /**
   * Ask somebody. Resolves with the `value` of the answer.
   *
   * @param to an address
   * @param value what JSON can say
   * @param options {type: "create" unless it is another, p2p: whether to ask for a channel}
   * @throws AnswerError with `code`, and in its text which step failed
   */
  async request(to, value, options = {}) {
    const message = this.#message(to, value, options, "create");
    try {
      return (await this.bus.request(message)).value;
    } catch (error) {
      if (!(error instanceof AnswerError)) throw error;
      const { why } = this.#hyperties.explain(to, this.url);
      error.message = `${error.message} [${error.code} from ${to}: ${why}]`;
      throw error;
    }
  }

  /** Tell somebody something; an answer that is an error goes to the error hook. */
  send(to, value, options = {}) {
    this.bus.postMessage(this.#message(to, value, options, "update"));
  }

  /** Have requests of a type handled, "*" for all others; the item's remove() ends it. */
  on(type, handler) {
    checkHandler(type, handler);
    this.#handlers.set(type, handler);
    const remove = () => this.#handlers.get(type) === handler && this.#handlers.delete(type);
    return { remove };
  }

  /** Take it out of the registry, give its address back, and hear nothing any more. */
  close() {
    return this.#hyperties.end(this);
  }

  #message(to, value, options, usual) {
    checkAddress("to", to);
    checkKeys("options", options, ["type", "p2p"]);
    const { type = usual, p2p = this.#isP2P } = options;
    if (!KINDS.includes(type)) throw wrong("options.type", `one of ${KINDS.join(", ")}`, type);
    checkBoolean("options.p2p", p2p);
    const body = { ...(value === undefined ? {} : { value }), ...(p2p ? { p2p: true } : {}) };
    return { type, from: this.url, to, body };
  }

  #received(message) {
    const { type, from, body } = message;
    if (type === "response" || type === "forward") return; // the latter is for its Syncher
    const others = this.bus.listenersOf(this.url).length > 1;
    if (type === "create" && from.endsWith("/subscription") && others) return;
    if (type === "execute" && from === `${this.runtimeURL}/registry/` && body?.via === undefined) {
      this.#hyperties
        .leave(this)
        .then(() => this.bus.postMessage(answerTo(message, { code: 200 })));
      return;
    }
    const handler = this.#handlers.get(type) ?? this.#handlers.get("*");
    if (!handler && others) return;
    answerInTime(this.bus, message, () => {
      if (!handler) throw new Refusal(405, `The hyperty ${this.name} has no handler for ${type}.`);
      const made = handler(body?.value, message);
      const told = (value) => (value === undefined ? { code: 200 } : { code: 200, value });
      return typeof made?.then === "function" ? made.then(told) : told(made);
    });
  }
}

/** The hyperties of one runtime. */
export class Hyperties {
  #parts;
  #all = new Map(); // url -> Hyperty

  /**
   * @param parts {bus, domain, resolver, registrations, add(url): a hyperty's MiniBUS, kept(key, fresh, isGood): from
   *   the storage, user(): URL of who is logged in, p2p(): PeerToPeer or null}
   */
  constructor(parts) {
    this.#parts = parts;
  }

  /** Make one that others can reach. @throws TypeError, LoadError, AnswerError */
  async make(name, options = {}) {
    if (typeof name !== "string" || !NAME.test(name))
      throw wrong("name", "a text of 1 to 64 letters, digits, _, . and -", name);
    const { register, resources, dataSchemes, p2p, handlers, url } = checked(
      options,
      this.#parts.domain,
    );
    const hyperty = await this.#claimed(name, { handlers, p2p, url });
    if (register === false) {
      this.#parts.bus.unregistered.add(hyperty.url);
      return hyperty;
    }
    const { domain, registrations } = this.#parts;
    const value = {
      url: hyperty.url,
      user: this.#userOf(register),
      descriptor: `hyperty-catalogue://${domain}/.well-known/hyperty/${name}`,
      resources,
      dataSchemes,
    };
    try {
      await registrations.register(value);
    } catch ({ body }) {
      await this.end(hyperty);
      throw failure(body, `domain://registry.${domain}`, `"${name}" is not registered`);
    }
    return hyperty;
  }

  /**
   * The addresses of hyperties that can be reached now, the one that gave a sign of life last first.
   *
   * @param criteria {user: name, e-mail address or user URL, resources, dataSchemes: what they must have}
   * @throws TypeError, AnswerError
   */
  async find(criteria) {
    checkKeys("criteria", criteria, ["user", "resources", "dataSchemes"]);
    const { user, resources = [], dataSchemes = [] } = criteria;
    checkText("criteria.user", user);
    checkTexts("criteria.resources", resources);
    checkTexts("criteria.dataSchemes", dataSchemes);
    const { bus, domain: home } = this.#parts;
    const isMail = !user.includes("://") && user.includes("@");
    const resource = isMail ? `/hyperty/idp-identifier/${user}` : userURL(user, home);
    const domain = isMail
      ? user.slice(user.lastIndexOf("@") + 1).toLowerCase()
      : domainOf(resource);
    const wanted = {
      ...(resources.length ? { resources } : {}),
      ...(dataSchemes.length ? { dataSchemes } : {}),
    };
    const to = isLegacy(user) ? user : `domain://registry.${domain}`;
    const body = { resource, ...(Object.keys(wanted).length ? { criteria: wanted } : {}) };
    const from = `${bus.runtimeURL}/registry/`;
    const told = await new Promise((resolve) =>
      askUntilAnswered(bus, { type: "read", from, to, body }, (reply) => {
        if (reply.body.code >= 200) resolve(reply.body);
      }),
    );
    if (told.code === 404 || (told.code === 408 && isRecords(told.value))) return []; // nobody who can be reached
    if (told.code >= 300) throw failure(told, to, `${user} cannot be looked up`);
    const records = Object.values(told.value ?? {}).filter((each) => each?.status === "live");
    const at = ({ lastModified }) => String(lastModified ?? "");
    records.sort((one, other) => at(other).localeCompare(at(one)));
    return records
      .map(({ hypertyID, url }) => hypertyID ?? url)
      .filter((each) => typeof each === "string");
  }

  /** Each: {name, url, isRegistered}. */
  listed() {
    const { registrations } = this.#parts;
    return [...this.#all.values()].map(({ name, url }) => ({
      name,
      url,
      isRegistered: registrations.has(url),
    }));
  }

  /**
   * What the runtime does about an address, and how a message would get there.
   *
   * @param from who would send it; this runtime if nobody is named
   * @returns {address, isHere, isClaimed, isRegistered, stub: {url, status, desc} or null, way: "here", "channel",
   *   "node" or "none", why}; isClaimed and isRegistered are null for what is not this runtime's
   */
  explain(address, from = `${this.#parts.bus.runtimeURL}/app`) {
    checkAddress("address", address);
    checkAddress("from", from);
    const { bus, registrations } = this.#parts;
    const isHere = bus.isHeard(address);
    const isBelow = bus.isBelowRuntime(address);
    const facts = { address, isHere, isClaimed: null, isRegistered: null, stub: null };
    if (!isHere && !isBelow) return { ...facts, ...this.#wayOut(address, from) };
    const isClaimed = this.#all.has(address);
    facts.isClaimed = isClaimed || isBelow;
    facts.isRegistered = registrations.has(address);
    if (isHere) return { ...facts, way: "here", why: whyHere(facts, isClaimed) };
    const why = "It is below this runtime's URL, and nobody listens to it.";
    return { ...facts, way: "none", why };
  }

  /** How a message leaves: {stub, way, why}. */
  #wayOut(address, from) {
    const { resolver, p2p, whyNoP2P } = this.#parts;
    const target = stubFor(address, resolver.homeDomain, resolver.names);
    if (!target?.key) return { way: "none", why: "No stub reaches such an address." };
    const entry = resolver.stubs.get(target.key);
    if (!entry)
      return { way: "node", why: `The stub of ${target.domain} is loaded with the first message.` };
    const { url, status, desc } = entry;
    const stub = { url, status, desc };
    const direct = p2p()?.explain(address, from) ?? { way: "node", why: whyNoP2P() };
    if (direct.way !== "node") return { stub, ...direct };
    if (status === "failed" || status === "deployment-failed")
      return { stub, way: "none", why: `The stub of ${target.domain} is ${status}: ${desc}` };
    const through = `Through the stub of ${target.domain}, which is ${status}.`;
    return { stub, way: "node", why: `${through} No channel: ${direct.why}` };
  }

  /** It leaves with the runtime: the registry is told. */
  async leave({ url }) {
    await this.#parts.registrations.remove(url);
  }

  /** The end of one. */
  async end(hyperty) {
    if (this.#all.get(hyperty.url) !== hyperty) return;
    this.#all.delete(hyperty.url);
    this.#parts.bus.unregistered.delete(hyperty.url);
    await this.#parts.registrations.remove(hyperty.url);
    await this.#parts.unclaim(hyperty.url);
    hyperty.remove();
  }

  async #claimed(name, { handlers, p2p, url }) {
    const { domain, kept } = this.#parts;
    const start = `hyperty://${domain}/`;
    const own =
      url ??
      kept(`msgnode.hyperty.${name}`, `${start}${newId()}`, (each) => each.startsWith(start));
    try {
      return await this.#claim(own, { name, handlers, p2p });
    } catch (error) {
      if (url || error.code !== 403) throw error;
      return this.#claim(`${start}${newId()}`, { name, handlers, p2p }); // another tab has it
    }
  }

  async #claim(url, { name, handlers, p2p }) {
    const { bus, runtimeURL, remove } = this.#parts.add(url);
    const hyperty = new Hyperty(this, {
      name,
      url,
      bus,
      runtimeURL,
      handlers: new Map(handlers),
      p2p,
    });
    hyperty.remove = remove;
    this.#all.set(url, hyperty);
    try {
      await this.#parts.claim(url);
    } catch (error) {
      this.#all.delete(url);
      remove();
      throw failure(
        error,
        `the node of ${this.#parts.domain}`,
        `"${name}" cannot have the address ${url}`,
      );
    }
    return hyperty;
  }

  #userOf(register) {
    const { user, domain, bus } = this.#parts;
    if (register !== true) return userURL(register, domain);
    return user() || `user://${domain}/${bus.runtimeURL.split("/").at(-1)}`;
  }
}

/** The user URL of a name, an e-mail address, or of what is one. */
function userURL(user, home) {
  if (user.includes("://")) return user;
  return user.includes("@")
    ? `user://${user.slice(user.lastIndexOf("@") + 1)}/${user}`
    : `user://${home}/${user}`;
}

function isRecords(value) {
  const isObject = (each) => typeof each === "object" && each !== null;
  return isObject(value) && Object.values(value).every(isObject);
}

function failure(body, to, what) {
  const { code = 500, desc, description, message } = body;
  const text = `${what}: ${desc ?? description ?? message ?? `${to} answered ${code}.`}`;
  return new AnswerError({ ...errorBody(code, text) }, to);
}

function whyHere({ isClaimed, isRegistered }, isOneOfOurs) {
  if (!isClaimed)
    return "Listened to here, and not claimed at the node: nobody outside reaches it.";
  if (!isOneOfOurs) return "Below this runtime's URL, which leads here anyway.";
  return isRegistered
    ? "Claimed at the node, and in the registry."
    : "Claimed at the node, and not registered.";
}

// --- arguments --------------------------------------------------------------------------------------

function checked(options, domain) {
  checkKeys("options", options, OPTIONS);
  const { register = true, resources = [], dataSchemes = [], p2p = false, url } = options;
  const handlers = handlersOf(options.handlers ?? {});
  if (typeof register !== "boolean" && (typeof register !== "string" || !register))
    throw wrong(
      "options.register",
      "true, false, or a user's name, e-mail address or URL",
      register,
    );
  checkTexts("options.resources", resources);
  checkTexts("options.dataSchemes", dataSchemes);
  checkBoolean("options.p2p", p2p);
  if (p2p && register === false)
    throw new TypeError("options.p2p needs options.register: the other side asks the registry.");
  if (url !== undefined) checkOwn(url, domain);
  return { handlers, register, resources, dataSchemes, p2p, url };
}

function checkOwn(url, domain) {
  const isOwn =
    typeof url === "string" && parse(url)?.scheme === "hyperty" && domainOf(url) === domain;
  if (!isOwn) throw wrong("options.url", `an address hyperty://${domain}/…`, url);
}

/** Pairs of type and function. */
function handlersOf(handlers) {
  if (typeof handlers === "function") return [["*", handlers]];
  if (typeof handlers !== "object" || Array.isArray(handlers))
    throw wrong(
      "options.handlers",
      "a function, or an object of functions by type of message",
      handlers,
    );
  const all = Object.entries(handlers);
  for (const [type, handler] of all) checkHandler(type, handler, "options.handlers");
  return all;
}

function checkHandler(type, handler, where = "type") {
  if (!TYPES.includes(type)) throw wrong(where, `one of ${TYPES.join(", ")}`, type);
  checkFunction(`${where} ${type}`, handler);
}
