/**
 * Cards: what a domain asserts of one of its users, read before any code of the domain runs.
 *
 *   webfinger of the user -> card (a JWT) -> the issuer's keys -> checks
 *
 * All of it is fetched from the domain itself, or where the options say that its catalogue is. A card says which
 * protostub leads to the user; while it is good, the runtime loads no other code for the domain than the card
 * names by its digests.
 */

import { parse } from "./addresses.js";
import { mayBePlain } from "./descriptor.js";
import { CardError } from "./errors.js";
import { decoded } from "./graph/base64.js";

const AUDIENCE = "protofly";
const LONGEST = 24 * 3_600; // seconds that a card may be good for
const LEEWAY = 60; // s
const MAX_CARD = 16_384;
const MAX_DOCUMENT = 262_144;
const MAX_DIGESTS = 100;

/**
 * The card of bob@example.org or user://example.org/bob.
 *
 * @param catalogue a Catalogue, which fetches
 * @returns {userURL, domain, endpoint and hyperty ("" if there is none), protostub, digests, expires: seconds since
 *   1970, claims}
 * @throws CardError
 */
export async function cardOf(user, catalogue) {
  const { domain, names } = named(String(user));
  const resource = user.includes("://") ? user : `acct:${user}`;
  const url = `${catalogue.baseOf(domain)}/.well-known/webfinger?resource=${encodeURIComponent(resource)}`;
  const none = new CardError(404, `${domain} has no card of ${user}.`);
  const { links } = await json(url, catalogue).catch((error) =>
    Promise.reject(error.code === 404 ? none : error),
  );
  const link = Array.isArray(links)
    ? links.find((each) => each?.rel === "contact-card")
    : undefined;
  if (!link) throw none;
  const token = await text(own(link.href, domain, catalogue, "card"), catalogue, MAX_CARD);
  return checkedToken(token.trim(), domain, catalogue, names);
}

/**
 * The card that a token is, of whichever user of the domain or of one of these names.
 *
 * @returns as cardOf()
 * @throws CardError
 */
export async function checkedToken(token, domain, catalogue, names) {
  const { head, claims } = read(token);
  const issuer = own(claims.iss, domain, catalogue, "issuer");
  const said = await json(`${issuer}/.well-known/openid-configuration`, catalogue);
  if (said.issuer !== issuer) throw new CardError(502, `${issuer} says that it is another issuer.`);
  const { keys } = await json(own(said.jwks_uri, domain, catalogue, "key set"), catalogue);
  if (!(await isSigned(token, head, keys)))
    throw new CardError(502, `The card is not signed by ${issuer}.`);
  const { aud, iat, exp, user_url: userURL, protostub, protostub_digests: digests = [] } = claims;
  const now = Date.now() / 1000;
  if (!Number.isFinite(iat) || !Number.isFinite(exp))
    throw new CardError(502, "The card's times are no numbers.");
  if (iat - LEEWAY > now || now >= exp || exp - iat > LONGEST) {
    throw new CardError(502, "The card has expired, or is good for too long, or not yet.");
  }
  if (![aud].flat().includes(AUDIENCE))
    throw new CardError(502, "The token is no card: it is for another audience.");
  const address = typeof userURL === "string" ? parse(userURL) : null;
  const isMeant = !names || names.includes(address?.path.replace(/^\/+|\/+$/g, ""));
  if (address?.domain !== domain || address.scheme !== "user" || !isMeant) {
    throw new CardError(502, `The card is that of ${String(userURL).slice(0, 200)}.`);
  }
  const isList = Array.isArray(digests) && digests.length <= MAX_DIGESTS;
  if (!isList || digests.some((each) => typeof each !== "string")) {
    throw new CardError(502, "The card's digests are no list of texts.");
  }
  const { push, hyperty } = claims;
  const isTheirs = typeof hyperty === "string" && parse(hyperty)?.domain === domain;
  return Object.freeze({
    userURL,
    domain,
    endpoint:
      push?.endpoint === undefined ? "" : own(push.endpoint, domain, catalogue, "push endpoint"),
    hyperty: isTheirs ? hyperty : "",
    protostub: own(protostub, domain, catalogue, "protostub"),
    digests: Object.freeze([...digests]),
    expires: exp,
    claims,
  });
}

/** The domain, and what the path of the user URL may be. */
function named(user) {
  const at = user.lastIndexOf("@");
  const address = user.includes("://") ? parse(user) : null;
  const domain = address ? address.domain : user.slice(at + 1).toLowerCase();
  const names = address ? [address.path.replace(/^\/+|\/+$/g, "")] : [user, user.slice(0, at)];
  const isUser = address ? address.scheme === "user" : at > 0;
  if (!isUser || !/^[a-z0-9._-]+(:\d+)?$/.test(domain) || !names[0] || /\p{Cc}/u.test(user)) {
    throw new CardError(400, `${JSON.stringify(user.slice(0, 200))} is no user of a domain.`);
  }
  return { domain, names };
}

/** The URL, if it is the domain's own. */
function own(url, domain, catalogue, what) {
  const shown = String(url).slice(0, 200);
  let parts;
  try {
    parts = new URL(url);
  } catch {
    throw new CardError(502, `The ${what} ${shown} is no URL.`);
  }
  const isSecure = parts.protocol === "https:" || (parts.protocol === "http:" && mayBePlain(parts));
  if (!isSecure) throw new CardError(502, `The ${what} ${shown} is not https.`);
  if (
    parts.hostname !== domain &&
    parts.host !== domain &&
    parts.host !== new URL(catalogue.baseOf(domain)).host
  ) {
    throw new CardError(502, `The ${what} ${shown} is not at ${domain}.`);
  }
  return url.replace(/\/+$/, "");
}

async function json(url, catalogue) {
  let found = null;
  try {
    found = JSON.parse(await text(url, catalogue, MAX_DOCUMENT));
  } catch (error) {
    if (error instanceof CardError) throw error;
  }
  if (typeof found !== "object" || found === null) {
    throw new CardError(502, `${new URL(url).host} answers with no JSON object.`);
  }
  return found;
}

async function text(url, catalogue, limit) {
  let found;
  try {
    found = await catalogue.document(url, limit);
  } catch (error) {
    throw new CardError(error.code ?? 504, error.message);
  }
  if (found === undefined)
    throw new CardError(404, `${new URL(url).host} has nothing at that address.`);
  return found;
}

function read(token) {
  const parts = token.split(".");
  try {
    const [head, claims] = parts
      .slice(0, 2)
      .map((part) => JSON.parse(new TextDecoder().decode(decoded(part))));
    if (
      parts.length === 3 &&
      typeof head === "object" &&
      head &&
      typeof claims === "object" &&
      claims
    )
      return { head, claims };
  } catch {
    // told below
  }
  throw new CardError(502, "The card is no signed token.");
}

/** RS256 by the key of that id; nothing else is taken. */
async function isSigned(token, { alg, kid }, keys) {
  if (!globalThis.crypto?.subtle)
    throw new CardError(501, "A card cannot be checked on a page without TLS.");
  const jwk = Array.isArray(keys)
    ? keys.find((each) => each?.kty === "RSA" && each.kid === kid)
    : undefined;
  if (alg !== "RS256" || !jwk) return false;
  const end = token.lastIndexOf(".");
  const algorithm = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
  try {
    const key = await crypto.subtle.importKey(
      "jwk",
      { kty: "RSA", n: jwk.n, e: jwk.e },
      algorithm,
      false,
      ["verify"],
    );
    if (key.algorithm.modulusLength < 2048) return false;
    return await crypto.subtle.verify(
      algorithm,
      key,
      decoded(token.slice(end + 1)),
      new TextEncoder().encode(token.slice(0, end)),
    );
  } catch {
    return false; // no key, or no signature
  }
}
