/**
 * Signed records: read, checked and made; docs/reference/registry.md, section B3. Pure.
 *
 * A record travels as a JWT: header {"alg":"ES256"}, payload {"data": the JSON in Base64}, signature over
 * secp256k1 by the key inside the record, in DER or as the 64 bytes of r and s. Both are read; DER is made,
 * because runtimes of the field verify nothing else.
 */

import { base64url, decoded } from "./base64.js";
import { derive, deriveLegacy, bare, loadMathematics } from "./guids.js";
import { pointOf } from "./keys.js";

export const MAX_LENGTH = 65_536;
const MAX_USER_IDS = 100;
const HEADER = "eyJhbGciOiJFUzI1NiJ9"; // {"alg":"ES256"}
const MANDATORY = [
  "guid",
  "schemaVersion",
  "userIDs",
  "lastUpdate",
  "timeout",
  "publicKey",
  "salt",
  "revoked",
  "defaults",
];
const DEFAULTS = ["voice", "chat", "video"];
const MOMENT = /^(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)(Z|[+-]\d\d:?\d\d)?$/;
const utf8 = (text) => new TextEncoder().encode(text);
const json = (bytes) => JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));

/** The text of a record is no proof; its message names what is wrong. */
class NoProof extends Error {}

/**
 * A record, proved.
 *
 * @returns {guid, record, lastUpdate, timeout: ms since 1970, isActive, isRevoked}
 * @throws Error whose message says what is wrong
 */
export async function read(jwt) {
  if (typeof jwt !== "string") throw new NoProof("it is no text.");
  if (jwt.length > MAX_LENGTH) throw new NoProof(`it is longer than ${MAX_LENGTH} characters.`);
  const { text, record, signature } = partsOf(jwt);
  for (const name of MANDATORY) {
    if (record[name] === undefined)
      throw new NoProof(`its mandatory parameter '${name}' is missing.`);
  }
  for (const name of DEFAULTS) {
    if (typeof record.defaults?.[name] !== "string")
      throw new NoProof(`its 'defaults.${name}' is no text.`);
  }
  const publicKey = textOf(record, "publicKey")
    .replace(/[\r\n]/g, "")
    .trim();
  if (!(await isSigned(text, signature, publicKey)))
    throw new NoProof("it is not signed by its own key.");
  const [guid, salt] = [bare(textOf(record, "guid")), textOf(record, "salt")];
  if (guid !== (await derive(publicKey, salt)) && guid !== (await deriveLegacy(publicKey, salt))) {
    throw new NoProof("its GUID does not follow from its key and salt.");
  }
  checkUserIds(record.userIDs);
  return {
    guid,
    record,
    lastUpdate: momentOf(record, "lastUpdate"),
    timeout: momentOf(record, "timeout"),
    isActive: flagOf(record, "active", true),
    isRevoked: flagOf(record, "revoked", false),
  };
}

/** The JWT of a record. */
export async function sign(record, privateKey) {
  const { secp256k1 } = await loadMathematics();
  const payload = JSON.stringify({ data: base64url(utf8(JSON.stringify(record))) });
  const text = `${HEADER}.${base64url(utf8(payload))}`;
  return `${text}.${base64url(secp256k1.sign(utf8(text), privateKey, { format: "der", lowS: false }))}`;
}

/** What names this very text of a record: SHA-256 in base64url. */
export async function digest(jwt) {
  const { sha256 } = await loadMathematics();
  return base64url(sha256(utf8(jwt)));
}

/** Whether the signature, in either encoding, is the key's over the text. */
export async function isSigned(text, signature, publicKey) {
  const { secp256k1 } = await loadMathematics();
  const point = pointOf(publicKey, decoded);
  if (!point) throw new NoProof("its public key is none on secp256k1.");
  const formats = signature.length === 64 ? ["compact", "der"] : ["der"];
  return formats.some((format) => {
    try {
      return secp256k1.verify(signature, utf8(text), point, { format, lowS: false });
    } catch {
      return false; // not of that form, or no point of the curve
    }
  });
}

function partsOf(jwt) {
  const parts = jwt.split(".");
  try {
    const [header, claims, signature] = [
      json(decoded(parts[0])),
      json(decoded(parts[1])),
      decoded(parts[2]),
    ];
    const record = json(decoded(claims.data));
    const isRecord = typeof record === "object" && record !== null && !Array.isArray(record);
    if (parts.length === 3 && ["ES256", "ES256K"].includes(header.alg) && isRecord) {
      return { text: `${parts[0]}.${parts[1]}`, record, signature };
    }
  } catch {
    // told below
  }
  throw new NoProof("it is no signed record.");
}

function textOf(record, name) {
  if (typeof record[name] !== "string") throw new NoProof(`its '${name}' is no text.`);
  return record[name];
}

function momentOf(record, name) {
  const [, moment, zone = "Z"] = MOMENT.exec(textOf(record, name)) ?? [];
  const found = moment
    ? Date.parse(moment.replace(",", ".") + zone.replace(/^(...)(\d\d)$/, "$1:$2"))
    : NaN;
  if (Number.isNaN(found)) throw new NoProof(`its '${name}' is no time.`);
  return found;
}

function flagOf(record, name, otherwise) {
  const value = record[name] ?? otherwise;
  if (![0, 1, true, false].includes(value)) throw new NoProof(`its '${name}' is neither 0 nor 1.`);
  return Boolean(value);
}

function checkUserIds(listed) {
  const ids = Array.isArray(listed) ? listed.map((each) => each?.uid ?? each?.uID ?? each) : [null];
  if (
    ids.length > MAX_USER_IDS ||
    ids.some((each) => typeof each !== "string" || /\p{Cc}/u.test(each))
  ) {
    throw new NoProof(`its 'userIDs' is no list of at most ${MAX_USER_IDS} users.`);
  }
}
