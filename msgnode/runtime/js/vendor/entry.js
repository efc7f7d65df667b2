/** What the Graph Connector needs of them: see package.json. */

export { secp256k1 } from "@noble/curves/secp256k1.js";
export { hmac } from "@noble/hashes/hmac.js";
export { pbkdf2Async } from "@noble/hashes/pbkdf2.js";
export { sha256, sha512 } from "@noble/hashes/sha2.js";
export { generateMnemonic, mnemonicToSeed, validateMnemonic } from "@scure/bip39";
export { wordlist } from "@scure/bip39/wordlists/english.js";
