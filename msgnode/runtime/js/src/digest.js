/**
 * Digests of a stub's source.
 *
 * `integrity` is `sha256-`, `sha384-` or `sha512-` with Base64, as browsers know it from scripts; of several,
 * parted by blanks, the strongest kind counts.
 * Pages that are not served over TLS have no crypto.subtle: SHA-256 is computed here then.
 */

import { LoadError } from "./errors.js";

const STRENGTH = ["sha256", "sha384", "sha512"];
const NAMES = { sha256: "SHA-256", sha384: "SHA-384", sha512: "SHA-512" };

/** Base64 of a digest of text or bytes. */
export async function digestOf(source, kind = "sha256") {
  const bytes = typeof source === "string" ? new TextEncoder().encode(source) : source;
  if (globalThis.crypto?.subtle)
    return base64(new Uint8Array(await crypto.subtle.digest(NAMES[kind], bytes)));
  if (kind === "sha256") return base64((await import("./sha256.js")).sha256(bytes));
  throw new LoadError(
    502,
    `sourcePackage.integrity: ${kind} cannot be computed on a page without TLS`,
  );
}

/** Throw unless the source has this digest. */
export async function checkIntegrity(source, integrity, field = "sourcePackage.integrity") {
  const known = integrity
    .split(/\s+/)
    .map((each) => /^(sha256|sha384|sha512)-([A-Za-z0-9+/]+=*)/.exec(each))
    .filter(Boolean);
  if (!known.length)
    throw new LoadError(502, `${field}: expected sha256-, sha384- or sha512- and Base64`);
  const kind = known
    .map((each) => each[1])
    .sort((a, b) => STRENGTH.indexOf(b) - STRENGTH.indexOf(a))[0];
  const digest = await digestOf(source, kind);
  const wanted = known.filter((each) => each[1] === kind).map((each) => each[2]);
  if (!wanted.some((each) => unpadded(each) === unpadded(digest))) {
    throw new LoadError(
      502,
      `${field}: the source's ${kind} is ${digest}, not ${wanted.join(" or ")}`,
    );
  }
}

function base64(bytes) {
  return btoa(String.fromCharCode(...bytes));
}

function unpadded(text) {
  return text.replace(/=+$/, "");
}
