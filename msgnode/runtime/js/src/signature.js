/**
 * Signatures of a stub's source, loaded where the keys of a domain are listed: Base64 of ECDSA P-256 with SHA-256.
 */

import { LoadError } from "./errors.js";

/** Throw unless one of these public keys (JWK, P-256) has signed the source. */
export async function checkSignature(source, signature, keys) {
  const field = "sourcePackage.signature";
  if (!signature)
    throw new LoadError(502, `${field}: the domain's stubs must be signed, and this one is not`);
  const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
  const bytes = new TextEncoder().encode(source);
  let signed;
  try {
    signed = Uint8Array.from(atob(signature), (letter) => letter.charCodeAt(0));
  } catch {
    throw new LoadError(502, `${field}: not Base64`);
  }
  for (const jwk of keys) {
    const key = await crypto.subtle.importKey(
      "jwk",
      { kty: jwk.kty, crv: jwk.crv, x: jwk.x, y: jwk.y },
      algorithm,
      false,
      ["verify"],
    );
    if (await crypto.subtle.verify(algorithm, key, signed, bytes)) return;
  }
  throw new LoadError(502, `${field}: none of the domain's keys has signed this source`);
}
