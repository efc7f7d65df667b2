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

/** About how many characters a message has; cheap, and bounded in depth. */
export function roughSize(value, depth = 0) {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null || depth > 200) return 4;
  let size = 2;
  for (const key in value) size += key.length + 3 + roughSize(value[key], depth + 1);
  return size;
}
