/** GUIDs: names that follow from a public key and a salt, docs/reference/registry.md, section B2. Pure. */

import { base64url } from "./base64.js";

const ROUNDS = 10_000;
const SCHEME = "user-guid://";
const utf8 = (text) => new TextEncoder().encode(text);

export const loadMathematics = () => import("../vendor/secp256k1-bip39.js");

/** Whether this is a GUID without its scheme. */
export function isGuid(text) {
  return typeof text === "string" && /^[A-Za-z0-9_-]{43}$/.test(text);
}

/** The GUID without its scheme. */
export function bare(guid) {
  return guid.startsWith(SCHEME) ? guid.slice(SCHEME.length) : guid;
}

/** The GUID of a key's text and a salt's. */
export async function derive(publicKey, salt) {
  const { pbkdf2Async, sha256 } = await loadMathematics();
  return base64url(
    await pbkdf2Async(sha256, utf8(publicKey), utf8(salt), { c: ROUNDS, dkLen: 32 }),
  );
}

/** The GUID that runtimes of the field give them: its first block ends with "1" for the number 1. */
export async function deriveLegacy(publicKey, salt) {
  const { hmac, sha256 } = await loadMathematics();
  const start = hmac.create(sha256, utf8(publicKey));
  let block = start
    .clone()
    .update(utf8(`${salt}1`))
    .digest();
  const mixed = Uint8Array.from(block);
  for (let round = 1; round < ROUNDS; round += 1) {
    block = start.clone().update(block).digest();
    for (let at = 0; at < 32; at += 1) mixed[at] ^= block[at];
  }
  return base64url(mixed);
}
