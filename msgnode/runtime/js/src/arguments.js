/** What an application hands to the runtime: a TypeError names what is wrong, and what it has to be. */

import { parse } from "./addresses.js";

const OPTIONS =
  `domain runtimeURL storage catalogues registries registryKeys hosts digests signers routing interworking capabilities
  stubConfig sandbox isolation sandboxPage WebSocket p2p RTCPeerConnection fetch fetchTime handlerTime debug limits times
  clock answerTime maxMessage`.split(/\s+/);
const BY_DOMAIN = {
  catalogues: ["URLs", isURL],
  registries: ["http or https URLs", (each) => isURL(each) && /^https?:/.test(each)],
  routing: ["stub, node or stub-else-node", (each) => ROUTES.includes(each)],
  stubConfig: ["objects", (each) => typeof each === "object" && each !== null],
  hosts: ["lists of hosts", Array.isArray],
  digests: ["digests", (each) => typeof each === "string"],
};
const ROUTES = ["stub", "node", "stub-else-node"];

/** Of a Runtime. @throws TypeError */
export function checkOptions(options) {
  checkKeys("options", options, OPTIONS);
  if (typeof options.domain !== "string" || !/^[^\s/:@]+$/.test(options.domain))
    throw wrong("options.domain", "a domain, such as example.org", options.domain);
  for (const [name, [what, isGood]] of Object.entries(BY_DOMAIN)) {
    const given = options[name];
    if (given === undefined) continue;
    const shape = `${name} is an object of ${what} by domain`;
    if (typeof given !== "object" || given === null) throw new TypeError(`${shape}.`);
    for (const [domain, each] of Object.entries(given))
      if (!isGood(each)) throw new TypeError(`${shape}: that of ${domain} is none.`);
  }
  const { storage } = options;
  if (!storage) return;
  checkFunction("storage.getItem", storage.getItem);
  checkFunction("storage.setItem", storage.setItem);
}

function isURL(text) {
  return typeof text === "string" && URL.canParse(text);
}

export function checkKeys(name, value, known) {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw wrong(name, `an object with ${known.join(", ")}`, value);
  for (const key of Object.keys(value))
    if (!known.includes(key))
      throw new TypeError(`${name} has no ${key}: it has ${known.join(", ")}.`);
}

export function checkText(name, value) {
  if (typeof value !== "string" || !value) throw wrong(name, "a text that is not empty", value);
}

export function checkTexts(name, value) {
  if (!Array.isArray(value) || !value.every((each) => typeof each === "string" && each))
    throw wrong(name, "a list of texts", value);
}

export function checkFunction(name, value) {
  if (typeof value !== "function") throw wrong(name, "a function", value);
}

export function checkBoolean(name, value) {
  if (typeof value !== "boolean") throw wrong(name, "true or false", value);
}

export function checkAddress(name, value) {
  if (typeof value !== "string" || !parse(value)?.scheme)
    throw wrong(name, "an address, such as hyperty://example.org/1", value);
}

export function wrong(name, shape, value) {
  const shown = typeof value === "string" ? JSON.stringify(value.slice(0, 60)) : typeOf(value);
  return new TypeError(`${name} is ${shape}, not ${shown}.`);
}

function typeOf(value) {
  if (value === null || value === undefined || typeof value === "boolean") return String(value);
  if (typeof value === "number") return String(value);
  return Array.isArray(value) ? "a list" : `a ${typeof value}`;
}
