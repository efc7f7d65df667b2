/**
 * What a catalogue says of a stub: every field is checked before anything of it runs. Pure.
 *
 * Rules
 * - What is wrong is refused with 502 and the field's name first; a language or a constraint that cannot
 *   be met here with 501.
 * - A field that may be missing is read as empty; so may `cguid`, `version`, `objectName` and `type`, which
 *   catalogues of files do not have. `configuration` may be JSON text.
 * - Of the platforms that `constraints` says are true the runtime must be one; everything else that is
 *   true must be a capability it has.
 * - The source comes with the descriptor, or from the same host; of `<name>.ps.json` without either it is
 *   `<name>.ps.js` beside it. `configuration.url`, or `messagingnode` where there is none, is on the stub's
 *   own domain or a host the operator lists.
 * - The cases of all readers of descriptors: tests/field-stubs.json.
 */

import { LoadError } from "./errors.js";

const PLATFORMS = ["browser", "node", "python", "windowSandbox"];
const ENDPOINTS = ["url", "messagingnode"];
const LANGUAGES = ["javascript"];
const TEXTS = [
  "cguid",
  "type",
  "language",
  "objectName",
  "description",
  "signature",
  "messageSchema",
  "accessControlPolicy",
  "mutualAuthentication",
  "sourcePackageURL",
];
const LISTS = ["messageSchemas", "hypertyType", "dataObjects"];
const FLAGS = ["interworking", "idpProxy"];
const PACKAGE_TEXTS = ["sourceCodeClassname", "signature", "integrity"];
const HOST = /^([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:\d+)?$/; // it becomes a part of policies
const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

export const MAX_SOURCE = 1_048_576; // bytes

/**
 * Read a descriptor.
 *
 * @param raw decoded JSON
 * @param context {domain: the stub's, url: where the descriptor came from, kind: "PROTOSTUB" or
 *   "IDP_PROXY", platform: what this runtime is, capabilities: what it has, hosts: more hosts for
 *   `configuration.url`}
 * @returns {cguid, version, objectName, constraints, configuration, endpoint: what the stub connects to, interworking, sourceURL, source, integrity, signature}
 * @throws LoadError
 */
export function checkDescriptor(raw, context) {
  if (!isObject(raw)) refuse("descriptor", "expected an object");
  for (const field of TEXTS)
    if (raw[field] != null && typeof raw[field] !== "string") refuse(field, "expected a text");
  for (const field of LISTS)
    if (raw[field] != null && !Array.isArray(raw[field])) refuse(field, "expected a list");
  for (const field of FLAGS)
    if (raw[field] != null && typeof raw[field] !== "boolean")
      refuse(field, "expected true or false");
  if (raw.version != null && !["string", "number"].includes(typeof raw.version))
    refuse("version", "expected a text or a number");
  const kind = context.kind ?? "PROTOSTUB";
  if (raw.type && raw.type.toUpperCase() !== kind)
    refuse("type", `expected ${kind}, found ${shown(raw.type)}`);
  checkLanguage(raw.language || LANGUAGES[0]);
  const constraints = checkConstraints(raw.constraints ?? {}, context);
  return {
    cguid: raw.cguid ?? "",
    version: String(raw.version ?? ""),
    objectName: raw.objectName ?? "",
    interworking: raw.interworking ?? false,
    constraints,
    ...checkConfiguration(raw.configuration, context),
    ...checkPackage(raw, context),
  };
}

/** Whether a URL may do without TLS: on the loopback, and at the very host a page came from. */
export function mayBePlain(url) {
  return LOOPBACK.test(url.hostname) || url.host === globalThis.location?.host;
}

function checkLanguage(language) {
  if (!LANGUAGES.some((known) => language.toLowerCase().startsWith(known))) {
    refuse("language", `this runtime runs JavaScript, not ${shown(language)}`, 501);
  }
}

function checkConstraints(constraints, { platform, capabilities = [] }) {
  if (!isObject(constraints)) refuse("constraints", "expected an object");
  for (const [name, value] of Object.entries(constraints)) {
    if (typeof value !== "boolean") refuse(`constraints.${name}`, "expected true or false");
  }
  const asked = Object.keys(constraints).filter((name) => constraints[name]);
  const platforms = asked.filter((name) => PLATFORMS.includes(name));
  const own = platform === "browser" ? ["browser", "windowSandbox"] : [platform];
  if (platforms.length && !platforms.some((name) => own.includes(name))) {
    refuse(`constraints.${platforms[0]}`, `this runtime is ${own.join(" and ")}`, 501);
  }
  const lacking = asked.find((name) => !PLATFORMS.includes(name) && !capabilities.includes(name));
  if (lacking) refuse(`constraints.${lacking}`, "this runtime does not have it", 501);
  return Object.fromEntries(asked.map((name) => [name, true]));
}

function checkConfiguration(given, { domain, hosts = [] }) {
  let configuration = given ?? {};
  if (typeof configuration === "string") {
    try {
      configuration = JSON.parse(configuration || "{}");
    } catch {
      refuse("configuration", "not JSON");
    }
  }
  if (!isObject(configuration)) refuse("configuration", "expected an object, or one as JSON text");
  const name = ENDPOINTS.find((each) => configuration[each] !== undefined);
  if (!name) return { configuration, endpoint: undefined };
  const [field, endpoint] = [`configuration.${name}`, configuration[name]];
  const url = parsed(endpoint, undefined, field);
  if (!HOST.test(url.host)) refuse(field, `${shown(url.host)} is no host name`);
  const isSecure = ["wss:", "https:"].includes(url.protocol);
  if (!isSecure && !(["ws:", "http:"].includes(url.protocol) && mayBePlain(url))) {
    refuse(field, `${shown(endpoint)} is neither wss nor https`);
  }
  const isOwn = [url.hostname, url.host].some(
    (host) => host === domain || host.endsWith(`.${domain}`),
  );
  if (!isOwn && !hosts.includes(url.host) && !hosts.includes(url.hostname)) {
    refuse(field, `${url.host} is not of ${domain}`);
  }
  return { configuration, endpoint };
}

function checkPackage(raw, { url: from }) {
  const inner = raw.sourcePackage ?? {};
  if (!isObject(inner)) refuse("sourcePackage", "expected an object");
  for (const field of PACKAGE_TEXTS) {
    if (inner[field] != null && typeof inner[field] !== "string")
      refuse(`sourcePackage.${field}`, "expected a text");
  }
  const { integrity = "", signature = "" } = inner;
  const isInline = ["/sourcePackage", "", null, undefined].includes(raw.sourcePackageURL);
  const beside = isInline && /\.(ps|idp)\.json$/.test(from) ? from.replace(/json$/, "js") : "";
  const named = beside || (raw.sourcePackageURL ?? "");
  if (inner.sourceCode != null)
    return { source: decoded(inner), sourceURL: "", integrity, signature };
  if (!named) refuse("sourcePackage.sourceCode", "expected a text, or a sourcePackageURL");
  if (named === "/sourcePackage")
    refuse("sourcePackage.sourceCode", "expected a text: sourcePackageURL says it is here");
  const target = parsed(named, from, "sourcePackageURL");
  if (target.host !== new URL(from).host)
    refuse("sourcePackageURL", `${target.host} is not the descriptor's host`);
  if (target.protocol !== "https:" && !(target.protocol === "http:" && mayBePlain(target))) {
    refuse("sourcePackageURL", `${shown(named)} is not https`);
  }
  return { source: null, sourceURL: target.href, integrity, signature };
}

function decoded({ encoding = "utf-8", sourceCode }) {
  if (typeof sourceCode !== "string") refuse("sourcePackage.sourceCode", "expected a text");
  if (typeof encoding !== "string") refuse("sourcePackage.encoding", "expected base64 or utf-8");
  const kind = encoding.toLowerCase();
  if (!["base64", "utf-8", "utf8", ""].includes(kind))
    refuse("sourcePackage.encoding", `expected base64 or utf-8, found ${shown(encoding)}`);
  if (sourceCode.length > MAX_SOURCE * 2)
    refuse("sourcePackage.sourceCode", `larger than ${MAX_SOURCE} bytes`);
  if (kind !== "base64") return checkedSource(sourceCode);
  try {
    return checkedSource(
      new TextDecoder().decode(Uint8Array.from(atob(sourceCode), (letter) => letter.charCodeAt(0))),
    );
  } catch (error) {
    if (error instanceof LoadError) throw error;
    return refuse("sourcePackage.sourceCode", "not Base64");
  }
}

/** The source, if it is not too large. */
export function checkedSource(source) {
  if (!source) refuse("sourcePackage.sourceCode", "empty");
  if (new TextEncoder().encode(source).length > MAX_SOURCE)
    refuse("sourcePackage.sourceCode", `larger than ${MAX_SOURCE} bytes`);
  return source;
}

function parsed(text, base, field) {
  if (typeof text !== "string") refuse(field, "expected a text");
  try {
    return new URL(text, base);
  } catch {
    return refuse(field, `${shown(text)} is no URL`);
  }
}

function refuse(field, text, code = 502) {
  throw new LoadError(code, `${field}: ${text}`);
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function shown(value) {
  return JSON.stringify(value)?.slice(0, 100);
}
