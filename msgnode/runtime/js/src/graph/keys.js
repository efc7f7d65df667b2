/**
 * From sixteen words to a key, a salt and a GUID. Pure.
 *
 * The first fifteen words are a BIP-39 mnemonic (160 bits and a checksum), whose seed has the key on secp256k1
 * as its BIP-32 master key; the salt is the Base64 of the SHA-256 of the last word. Who has the words is that
 * person, at any device.
 */

import { base64 } from "./base64.js";
import { GraphError } from "../errors.js";
import { derive, deriveLegacy, loadMathematics } from "./guids.js";

const ENTROPY = 160; // bits: fifteen words
const COUNT = 16;
const BEGIN = "-----BEGIN PUBLIC KEY-----";
const END = "-----END PUBLIC KEY-----";
const DER_HEAD = "3056301006072a8648ce3d020106052b8104000a034200"; // SubjectPublicKeyInfo on secp256k1
const utf8 = (text) => new TextEncoder().encode(text);

/** Sixteen words, from the platform's source of chance. */
export async function newWords() {
  const { generateMnemonic, wordlist } = await loadMathematics();
  const last = crypto.getRandomValues(new Uint16Array(1))[0] % wordlist.length; // 2048: all are as likely
  return `${generateMnemonic(wordlist, ENTROPY)} ${wordlist[last]}`;
}

/**
 * What follows from the words, which may be in capitals and set apart by any blanks.
 *
 * @returns {privateKey: bytes, publicKey, salt, guid, legacyGuid: what older runtimes named them}
 * @throws GraphError 400: they are not sixteen, one is not in the list, or they do not belong together
 */
export async function keysOf(words) {
  const { mnemonicToSeed, sha256, validateMnemonic, wordlist } = await loadMathematics();
  const each = String(words).toLowerCase().split(/\s+/).filter(Boolean);
  if (each.length !== COUNT)
    throw new GraphError(400, `There are ${each.length} words instead of ${COUNT}.`);
  const unknown = each.findIndex((word) => !wordlist.includes(word)); // the words are secret, errors are logged
  if (unknown >= 0) throw new GraphError(400, `Word ${unknown + 1} is none of the list.`);
  const mnemonic = each.slice(0, -1).join(" ");
  if (!validateMnemonic(mnemonic, wordlist)) {
    throw new GraphError(400, "The words do not belong together: one is wrong or out of place.");
  }
  const privateKey = await masterKey(await mnemonicToSeed(mnemonic));
  const publicKey = await publicText(privateKey);
  const salt = base64(sha256(utf8(each.at(-1))));
  const [guid, legacyGuid] = [await derive(publicKey, salt), await deriveLegacy(publicKey, salt)];
  return { privateKey, publicKey, salt, guid, legacyGuid };
}

/** The BIP-32 master key of a seed. */
export async function masterKey(seed) {
  const { hmac, secp256k1, sha512 } = await loadMathematics();
  const key = hmac(sha512, utf8("Bitcoin seed"), seed).slice(0, 32);
  if (!secp256k1.utils.isValidSecretKey(key))
    throw new GraphError(400, "No key follows from these words; take others.");
  return key;
}

/** The public key in a record's form: PEM marks and Base64 on one line. */
export async function publicText(privateKey) {
  const { secp256k1 } = await loadMathematics();
  const point = secp256k1.getPublicKey(privateKey, false);
  const head = DER_HEAD.match(/../g).map((pair) => parseInt(pair, 16));
  return BEGIN + base64(Uint8Array.of(...head, ...point)) + END;
}

/** The point of a public key in a record's form; null if it is none on secp256k1. */
export function pointOf(publicKey, decoded) {
  try {
    const body = publicKey.startsWith(BEGIN) ? publicKey.slice(BEGIN.length) : publicKey;
    const der = decoded(body.endsWith(END) ? body.slice(0, -END.length) : body);
    const head = [...der.subarray(0, 23)]
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join("");
    return head === DER_HEAD && der.length === 88 ? der.subarray(23) : null;
  } catch {
    return null;
  }
}
