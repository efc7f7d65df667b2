/** Base64 of either alphabet, padded or not. */

export function base64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

export function base64url(bytes) {
  return base64(bytes).replace(/=+$/, "").replaceAll("+", "-").replaceAll("/", "_");
}

/** @throws an error of the platform for what is no Base64 */
export function decoded(text) {
  if (/\s/.test(text)) throw new TypeError("Base64 has no blanks.");
  const plain = atob(text.replace(/=+$/, "").replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}
