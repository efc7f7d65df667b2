/**
 * What a message to a domain registry is as a request over REST, and what may be answered. Pure.
 *
 * The paths are those of the field's registry, which a node serves below /domain-registry:
 *
 *   read    hyperty://…, data object's URL, name, user://…, user-guid://…, /hyperty/user|idp-identifier|email|guid/<key>,
 *           /hyperty/<URL>, /comm with criteria.reporter or criteria.name; criteria.resources, criteria.dataSchemes
 *   create  value with url, and user for a hyperty          update  a sign of life, or value
 *   delete  value.url, with value.user for a hyperty
 *
 * Rules
 * - What has no such path is refused 501: it can be asked by messages.
 * - An answer counts only if it is about what was asked for: each record names the URL it stands under, and the user,
 *   GUID, name or reporter that was looked for.
 */

import { parse } from "./addresses.js";
import { errorBody } from "./messages.js";

const MAX_WORDS = 500;
const HYPERTIES = new Set(["hyperty", "hyperty-runtime", "user", "user-guid"]);
const KEYS = { user: "user", "idp-identifier": "email", email: "email", guid: "guid" };
const NAMES = { user: "userID", guid: "guid", name: "name", reporter: "reporter" };
const CRITERIA = ["resources", "dataSchemes", "reporter", "name"];
const PASSED_ON = new Set([400, 401, 403, 404, 409, 412, 413, 429]);

/** The registry cannot be asked for this, or answers wrongly; `code` as in an answer. */
export class RegistryRefusal extends Error {
  constructor(code, text) {
    super(text);
    this.name = "RegistryRefusal";
    this.code = code;
  }
}

/** {method, path, body?, url?, by?}: url or by say what the answer must be about. @throws RegistryRefusal */
export function callOf(type, body) {
  const calls = { read, create, update, delete: remove };
  if (!Object.hasOwn(calls, type))
    throw new RegistryRefusal(400, "A domain registry takes create, read, update and delete.");
  return calls[type](typeof body === "object" && body ? body : {});
}

/** The body of the answer to the message. @param found the JSON of the answer, undefined if it is none @throws RegistryRefusal */
export function bodyOfAnswer(call, status, found) {
  if (status !== 200 && status !== 408)
    throw new RegistryRefusal(codeOf(status), wordsOf(status, found));
  if (!isObject(found)) throw new RegistryRefusal(502, "The registry answers with no JSON object.");
  if (call.method !== "GET") {
    if (status === 408) throw new RegistryRefusal(408, wordsOf(status, found));
    return { code: 200 };
  }
  if (call.url) check(call, call.url, found);
  else {
    for (const [url, record] of Object.entries(found)) check(call, url, record);
    if (!Object.keys(found).length) throw new RegistryRefusal(404, "Not Found");
  }
  return status === 408
    ? { ...errorBody(408, "Temporarily Unavailable"), value: found }
    : { code: 200, value: found };
}

function check({ by }, url, record) {
  if (!isObject(record) || (record.hypertyID ?? record.url) !== url) {
    throw new RegistryRefusal(
      502,
      `The registry answers with another entry than ${url.slice(0, 200)}.`,
    );
  }
  if (!by) return;
  const [key, wanted] = by;
  let isIt = record[NAMES[key]] === wanted;
  if (key === "email") isIt = String(record.userID).split("/").at(-1) === wanted;
  if (key === "guid") isIt = (record.guid ?? wanted) === wanted; // not all registries tell it
  if (!isIt)
    throw new RegistryRefusal(
      502,
      `The registry answers with an entry of another ${key} than ${wanted.slice(0, 200)}.`,
    );
}

function read(body) {
  const resource = textOf(body, "resource");
  const criteria = objectOf(body, "criteria");
  for (const name of Object.keys(criteria)) {
    if (!CRITERIA.includes(name))
      throw new RegistryRefusal(
        501,
        `Over REST a registry knows no criterion ${name.slice(0, 100)}.`,
      );
  }
  const filters = ["resources", "dataSchemes"]
    .map((name) => [name, listOf(criteria, name)])
    .filter(([, list]) => list.length);
  const query = filters.map(([name, list]) => `${name}=${list.map(encoded).join(",")}`).join("&");
  const [kind, key, value] = lookedFor(resource, criteria);
  if (key === "url") {
    if (query)
      throw new RegistryRefusal(501, "Over REST a registry takes no criteria beside a URL.");
    return { method: "GET", path: entry(kind, value, "hyperty/dataobject/url"), url: value };
  }
  if (query && key === "guid")
    throw new RegistryRefusal(501, "Over REST a registry takes no criteria beside a GUID.");
  const start = kind === "hyperty" ? "hyperty" : "hyperty/dataobject";
  const end = query ? `/${kind === "hyperty" ? "hyperty" : "do"}?${query}` : "";
  return { method: "GET", path: `${start}/${key}/${encoded(value)}${end}`, by: [key, value] };
}

/** Of which kind, by which key, and its value. */
function lookedFor(resource, criteria) {
  if (!resource.startsWith("/")) {
    const scheme = resource.includes("://") ? parse(resource)?.scheme : "";
    if (scheme === "user") return ["hyperty", "user", resource];
    if (scheme === "user-guid") return ["hyperty", "guid", resource];
    return scheme ? [kindOf(scheme), "url", resource] : ["object", "name", resource];
  }
  const [word, ...parts] = resource.slice(1).split("/");
  const [kind, rest, value] = [kindOf(word), parts.join("/"), parts.slice(1).join("/")];
  if (!rest) {
    const key = ["reporter", "name"].find((each) => each in criteria && kind === "object");
    if (key) return [kind, key, textOf(criteria, key)];
  }
  if (kind === "hyperty" && Object.hasOwn(KEYS, parts[0] ?? "") && value) {
    const key = KEYS[parts[0]];
    return [kind, key === "user" && !value.includes("://") ? "email" : key, value];
  }
  if (rest.includes("://")) return [kind, "url", rest];
  throw new RegistryRefusal(
    501,
    `Over REST a registry cannot be asked for ${resource.slice(0, 200)}.`,
  );
}

function create(body) {
  const value = objectOf(body, "value");
  const url = textOf(value, "url");
  if (kindOf(parse(url)?.scheme ?? "") === "object")
    return { method: "PUT", path: `hyperty/dataobject/${encoded(url)}`, body: value };
  const user = textOf(value, "user");
  const { url: _, user: __, ...facts } = value;
  return { method: "PUT", path: `hyperty/user/${encoded(user)}/${encoded(url)}`, body: facts };
}

function update(body) {
  const url = urlOf(body);
  const { attribute, value } = body;
  const isOne = typeof attribute === "string" && attribute && value !== undefined && value !== null;
  const facts = isOne ? { [attribute]: value } : objectOf(body, "value");
  return {
    method: "PUT",
    path: entry(kindOf(parse(url).scheme), url, "dataobject/url"),
    body: facts,
  };
}

function remove(body) {
  const url = urlOf(body);
  const { user } = objectOf(body, "value");
  const kind = kindOf(parse(url).scheme);
  if (kind === "hyperty" && typeof user === "string" && user) {
    return { method: "DELETE", path: `hyperty/user/${encoded(user)}/${encoded(url)}` };
  }
  return {
    method: "PUT",
    path: entry(kind, url, "dataobject/url"),
    body: { status: "disconnected" },
  };
}

function urlOf({ resource, value }) {
  const url = resource || (isObject(value) ? value.url : undefined);
  if (typeof url !== "string" || !parse(url)?.domain) {
    throw new RegistryRefusal(400, "The body names no entry: `resource` must be its URL.");
  }
  return url;
}

function entry(kind, url, ofObjects) {
  return `${kind === "hyperty" ? "hyperty/url" : ofObjects}/${encoded(url)}`;
}

function kindOf(word) {
  return HYPERTIES.has(word.toLowerCase()) ? "hyperty" : "object";
}

function textOf(body, name) {
  const value = body[name] ?? "";
  if (value === "") throw new RegistryRefusal(400, `The body lacks \`${name}\`.`);
  if (typeof value !== "string")
    throw new RegistryRefusal(400, `The field \`${name}\` must be a text.`);
  return value;
}

function objectOf(body, name) {
  const value = body[name] ?? {};
  if (!isObject(value)) throw new RegistryRefusal(400, `\`${name}\` must be an object.`);
  return value;
}

function listOf(criteria, name) {
  const value = criteria[name] || [];
  const listed = typeof value === "string" ? [value] : value;
  if (!Array.isArray(listed) || listed.some((each) => typeof each !== "string")) {
    throw new RegistryRefusal(400, `The criterion \`${name}\` must be a list of texts.`);
  }
  return listed;
}

function encoded(text) {
  try {
    return encodeURIComponent(text);
  } catch {
    throw new RegistryRefusal(400, "The body has a text that is no Unicode."); // half of a pair
  }
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function codeOf(status) {
  if (PASSED_ON.has(status)) return status;
  return status >= 500 ? 504 : 502;
}

function wordsOf(status, found) {
  const words =
    typeof found?.message === "string" && found.message
      ? found.message
      : `The registry answers ${status}.`;
  return words.slice(0, MAX_WORDS);
}
