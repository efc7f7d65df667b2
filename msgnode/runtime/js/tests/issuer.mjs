/** An identity provider of a domain of a test's world: signs what a test has it assert. */

import { base64url } from "../src/graph/base64.js";
import { descriptorOf } from "./world.mjs";

const ALGORITHM = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
const utf8 = (text) => new TextEncoder().encode(text);
const pairs = new Map();

export async function pair(name, bits = 2048) {
  if (!pairs.has(name)) {
    const made = { ...ALGORITHM, modulusLength: bits, publicExponent: Uint8Array.of(1, 0, 1) };
    pairs.set(name, await crypto.subtle.generateKey(made, true, ["sign", "verify"]));
  }
  return pairs.get(name);
}

export const jwkOf = async ({ publicKey }) => ({
  ...(await crypto.subtle.exportKey("jwk", publicKey)),
  kid: "k",
});

/** What a card of user://<domain>/bob says, but for `claims`. */
export async function assertedOf(domain, claims = {}) {
  const now = Math.floor(Date.now() / 1000);
  const { sourcePackage } = await descriptorOf(domain);
  return {
    ...{
      iss: `https://${domain}/o`,
      sub: "1",
      aud: "protofly",
      iat: now,
      exp: now + 3600,
      user_url: `user://${domain}/bob`,
    },
    protostub: `https://${domain}/.well-known/protocolstub/default`,
    protostub_digests: [sourcePackage.integrity],
    ...claims,
  };
}

export async function tokenOf(claims, { head = {}, signer = "good" } = {}) {
  const signed = [{ alg: "RS256", kid: "k", ...head }, claims]
    .map((each) => base64url(utf8(JSON.stringify(each))))
    .join(".");
  const { privateKey } = await pair(signer);
  return `${signed}.${base64url(new Uint8Array(await crypto.subtle.sign(ALGORITHM, privateKey, utf8(signed))))}`;
}

/** The domain publishes its keys. */
export async function publish(catalogues, domain, keys) {
  const issuer = `https://${domain}/o`;
  catalogues.answers.set(`${issuer}/.well-known/openid-configuration`, {
    json: { issuer, jwks_uri: `${issuer}/jwks` },
  });
  catalogues.answers.set(`${issuer}/jwks`, {
    json: { keys: keys ?? [await jwkOf(await pair("good"))] },
  });
}
