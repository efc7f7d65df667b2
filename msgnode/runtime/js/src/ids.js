/** Random ids. crypto.randomUUID() is missing where a page is not served over TLS. */

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Tells one beginning of a data object from the others under the same address. */
export const newIncarnation = () => newId().slice(0, 12);
