/**
 * What policies may ask about one message, each found out when it is first asked for. Pure.
 *
 *   value(name)   as it is, null if the message has none
 *   texts(name)   a list of texts, null if there is none      number(name)   NaN if there is none
 *
 * Rules
 * - Facts belong to one message and are never used again.
 * - Who sends is what `speaker` says, never what the body says.
 * - What is there and cannot be told raises CannotTell.
 */

import { isP2P, parse } from "../addresses.js";
import { RATE, WEEKDAYS, kindOf } from "./vocabulary.js";

const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$/;
const CLOCK = /^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?$/;
const DATE = /^(\d{4})-(\d{2})-(\d{2})$/;
const DAY = 86_400_000;

/** A condition has no truth value: its attribute is unknown or of the wrong kind. */
export class CannotTell extends Error {}

export class Facts {
  #known = new Map();

  /**
   * @param message {id, type, from, to, body}
   * @param around {direction, speaker: {username, issuer, groups, session, address, runtimeURL, origin},
   *   now: a Date whose UTC fields are the local time, node: {domain, …}, lookUp(name, facts)}
   */
  constructor(
    message,
    { direction = "in", speaker = {}, now = new Date(), node = {}, lookUp = () => null } = {},
  ) {
    Object.assign(this, { message, direction, speaker, now, node, lookUp });
  }

  /** Take these values as given instead of finding them out. */
  give(values) {
    for (const [name, value] of Object.entries(values)) {
      const isFolded = kindOf(name) === "folded" && value !== null;
      this.#known.set(name, isFolded ? String(value).toLowerCase() : value);
    }
    return this;
  }

  value(name) {
    if (!this.#known.has(name)) this.#known.set(name, this.#read(name) ?? null);
    return this.#known.get(name);
  }

  texts(name) {
    return textsOf(this.value(name));
  }

  number(name) {
    if (name === "time") return placeOf("time", this.value("time"));
    if (name === "date") return placeOf("date", this.value("date"));
    if (name === "weekday") return placeOf("weekday", this.value("weekday"));
    if (name.startsWith("sumOf "))
      return name
        .split(" ")
        .slice(1)
        .reduce((sum, term) => sum + this.number(term), 0);
    return numberOf(this.value(name));
  }

  #read(name) {
    if (Object.hasOwn(READERS, name)) return READERS[name](this);
    if (name.startsWith("body.")) return at(this.message.body, name.split(".").slice(1));
    if (name.startsWith("sumOf ")) {
      const sum = this.number(name);
      return Number.isNaN(sum) ? null : sum;
    }
    if (RATE.test(name) || kindOf(name)) return this.lookUp(name, this);
    throw new CannotTell(`there is no attribute ${name}`);
  }
}

/** A JSON scalar as the text that comparisons use. */
export function textOf(scalar) {
  return String(scalar);
}

/** The texts of a value; of a list its scalars. */
export function textsOf(value) {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value))
    return value.filter((each) => each !== null && typeof each !== "object").map(textOf);
  return typeof value === "object" ? [] : [textOf(value)];
}

/** The number of a value: of a list its length. */
export function numberOf(value) {
  if (value === null || value === undefined) return NaN;
  if (typeof value === "number") return value;
  if (Array.isArray(value)) return value.length;
  if (typeof value === "string" && NUMBER.test(value)) return Number(value);
  throw new CannotTell(`${JSON.stringify(value)?.slice(0, 60)} is not a number`);
}

/** Where a time, date or weekday stands in its order; null if the text is none. */
export function placeOf(kind, text) {
  if (kind === "weekday") {
    const day = WEEKDAYS.indexOf(String(text).toLowerCase());
    return day < 0 ? null : day;
  }
  const match = (kind === "time" ? CLOCK : DATE).exec(text);
  if (!match) return null;
  if (kind === "time")
    return Number(match[1]) * 3600 + Number(match[2]) * 60 + Number(match[3] ?? 0);
  const moment = Date.parse(`${text}T00:00:00Z`);
  const isDate = !Number.isNaN(moment) && new Date(moment).toISOString().startsWith(text);
  return isDate ? moment / DAY : null;
}

/** The number of a parameter, or its place; null if it is none. */
export function boundOf(kind, item) {
  if (["time", "date", "weekday"].includes(kind))
    return typeof item === "string" ? placeOf(kind, item) : null;
  const number = typeof item === "string" && NUMBER.test(item) ? Number(item) : item;
  return typeof number === "number" && Number.isFinite(number) ? number : null;
}

function at(value, path) {
  for (const key of path) {
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    value = isObject && Object.hasOwn(value, key) ? value[key] : undefined;
  }
  return value;
}

const body =
  (...path) =>
  (facts) =>
    at(facts.message.body, path);
const known = (name) => (facts) => facts.speaker[name] || null;
const ofNode = (name) => (facts) => facts.node[name];
const two = (number) => String(number).padStart(2, "0");
const hostOf = (address) => (parse(address)?.domain ?? address).replace(/^\.+/, "").toLowerCase();
const schemeOf = (address) => parse(address)?.scheme ?? "https";
const firstOf = (path) => path.replace(/^\/+/, "").split("/", 1)[0];

function hypertyOf(address) {
  const parts = parse(address);
  return parts?.scheme === "hyperty" ? `hyperty://${parts.domain}/${firstOf(parts.path)}` : null;
}

function runtimeOf(address, name, facts) {
  const parts = parse(address);
  if (!["runtime", "hyperty-runtime"].includes(parts?.scheme)) return facts.lookUp(name, facts);
  return `${parts.scheme}://${parts.domain}/${firstOf(parts.path)}`;
}

function userDomain({ speaker: { username = "", issuer = "" } }) {
  const idp = issuer.replace(/^[a-z]+:\/\//i, "").split("/", 1)[0];
  if (!username) return idp.toLowerCase() || null;
  const [, domain] = username.split("@");
  return (domain ?? (idp || username)).toLowerCase();
}

function subscribeTo({ message }) {
  if (!["subscribe", "unsubscribe"].includes(message.type)) return null;
  const keys = ["resource", "resources", "subscribe", "unsubscribe"];
  return [
    ...new Set(
      keys.flatMap((key) => message.body?.[key]).filter((each) => typeof each === "string"),
    ),
  ];
}

/** The first kind of message that fits either end (addresses of one kind at both, where `both`). */
function kindOfMessage({ message: { from, to } }) {
  const ends = [from, to].map((end) => end.replace(/\/+$/, ""));
  if (ends.some((end) => end.startsWith("domain://registry."))) return "registration";
  if (isP2P(from) || isP2P(to)) return "p2pConnection";
  for (const [name, tails, both] of BY_END) {
    const fits = (end) => tails.some((tail) => end.endsWith(tail));
    if (both ? ends.every(fits) : ends.some(fits)) return name;
  }
  return null;
}

const BY_END = [
  ["addressAllocation", ["/address-allocation"], true],
  ["objectAllocation", ["/object-address-allocation", "/object-allocation"], false],
  ["discovery", ["/discovery"], false],
  ["globalRegistry", ["/graph-connector"], false],
  ["identityManagement", ["/idm"], false],
  ["p2pConnection", ["/ua"], false],
  ["dataSync", ["/sm"], false],
];

const READERS = {
  msgFrom: ({ message }) => message.from,
  msgTo: ({ message }) => message.to,
  msgId: ({ message }) => message.id,
  msgType: kindOfMessage,
  actionType: ({ message }) => message.type.toLowerCase(),
  direction: ({ direction }) => direction,
  bytes: ({ message }) => new TextEncoder().encode(JSON.stringify(message)).length,
  auth: () => null, // a mark of the policy engine; what a sender claims is no fact
  srcScheme: ({ message }) => schemeOf(message.from),
  dstScheme: ({ message }) => schemeOf(message.to),
  srcSPDomain: ({ message }) => hostOf(message.from),
  dstSPDomain: ({ message }) => hostOf(message.to),
  srcHyperty: ({ message }) => hypertyOf(message.from),
  dstHyperty: ({ message }) => hypertyOf(message.to),
  hyperty: ({ message }) => hypertyOf(message.to),
  resource: body("resource"),
  resourceType: body("value", "resourceType"),
  subscription: body("subscriber"),
  subscribeTo,
  bodyValue: body("value"),
  valueNumber: body("value", "number"),
  valueAllocated: body("value", "allocated"),
  valueExpires: body("value", "expires"),
  valueResources: body("value", "resources"),
  valueUser: body("value", "user"),
  valueDescriptor: body("value", "descriptor"),
  srcUsername: known("username"),
  srcIDP: known("issuer"),
  srcIDPDomain: userDomain,
  srcGroups: known("groups"),
  srcSession: known("session"),
  srcAddress: known("address"),
  srcOrigin: ({ speaker }) => speaker.origin ?? "runtime",
  srcRuntime: (facts) =>
    facts.speaker.runtimeURL ?? runtimeOf(facts.message.from, "srcRuntime", facts),
  dstRuntime: (facts) => runtimeOf(facts.message.to, "dstRuntime", facts),
  time: ({ now }) =>
    `${two(now.getUTCHours())}:${two(now.getUTCMinutes())}:${two(now.getUTCSeconds())}`,
  date: ({ now }) => now.toISOString().slice(0, 10),
  weekday: ({ now }) => WEEKDAYS[(now.getUTCDay() + 6) % 7],
  domain: ofNode("domain"),
  domainRegistry: ofNode("domainRegistry"),
  port: ofNode("port"),
  useSSL: ofNode("useSSL"),
};
