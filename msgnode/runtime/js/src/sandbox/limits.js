/** What a sandbox may use. Pure. */

export const LIMITS = Object.freeze({
  startTime: 10_000, // ms until a component has started
  deleteTime: 4_000, // ms until one is gone
  pingEvery: 2_500, // ms
  readTime: 5_000, // ms a port may stay unread
  maxUnread: 4_194_304, // characters
  pingAfter: 262_144, // characters that are sent before it is asked whether they were read
  rate: 1_000, // messages a second that it may post
  rateBytes: 4_194_304, // characters of them a second
  memory: 64, // MiB
});

const MOST = 33_554_432; // characters that are counted
const MORE = 2 ** 40; // what has more, or goes round, is more than anything may be

/**
 * About how many characters a message has, buffers and all. Cheap, and bounded whatever it is made of: what a
 * browser's sandbox posts may be anything that can be cloned.
 */
export function roughSize(message) {
  const waiting = [message];
  let size = 0;
  while (waiting.length && size <= MOST) {
    const value = waiting.pop();
    if (typeof value === "string") size += value.length + 2;
    else if (typeof value !== "object" || value === null) size += 4;
    else if (value instanceof ArrayBuffer) size += value.byteLength + 2;
    else if (ArrayBuffer.isView(value))
      size += value.buffer.byteLength + 2; // that is cloned, too
    else if (value instanceof Map || value instanceof Set) {
      size += 2;
      for (const each of value) if ((size += 2) <= MOST) waiting.push(each);
    } else {
      size += 2;
      for (const key in value) {
        size += key.length + 3;
        if (size > MOST) break;
        waiting.push(value[key]);
      }
    }
  }
  return size > MOST ? MORE : size;
}
