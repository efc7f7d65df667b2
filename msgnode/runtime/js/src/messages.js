/**
 * Messages as values: reading, copying, measuring and answering them. Pure.
 *
 * Rules
 * - A taken message is a frozen header {id, type, from, to, …} with a body that belongs to one holder.
 *   Whoever is handed a message may change its body and nobody else sees it.
 * - Only what JSON can say, or a structured clone, travels: a function in a message is refused.
 * - Types are read in any case and written in lower case; codes are read as numbers, text of digits or
 *   "2XX", and anything else is 500.
 */

export const MAX_MESSAGE = 1_048_576; // bytes of JSON in UTF-8
export const MAX_RECIPIENTS = 100;
const MAX_DEPTH = 200;
const MARKS = ["auth", "assertedIdentity", "via", "peer"]; // what the runtime and its own node say of a message
const HEADER = { id: 1, type: 1, from: 1, to: 1, body: 1 };

let weight = 0; // characters seen by the copy that runs: at least a sixth of its bytes
let hasBuffers = false; // which JSON cannot carry

/** A deep copy. Throws TypeError for what cannot travel. */
export function copyOf(value, depth = 0) {
  if (typeof value === "string") {
    weight += value.length + 2;
    return value;
  }
  if (typeof value !== "object" || value === null) {
    if (typeof value === "function" || typeof value === "symbol") {
      throw new TypeError(`A message cannot carry a ${typeof value}.`);
    }
    weight += 4;
    return value;
  }
  if (depth >= MAX_DEPTH)
    throw new TypeError(`A message is nested deeper than ${MAX_DEPTH} layers.`);
  weight += 1;
  if (Array.isArray(value)) {
    const { length } = value;
    const copy = new Array(length);
    for (let index = 0; index < length; index += 1) copy[index] = copyOf(value[index], depth + 1);
    return copy;
  }
  const prototype = Object.getPrototypeOf(value);
  if (
    prototype !== Object.prototype &&
    prototype !== null &&
    Object.getPrototypeOf(prototype) !== null
  ) {
    weight += value.byteLength ?? value.size ?? 16;
    hasBuffers ||= isBuffer(value);
    return structuredClone(value);
  }
  const copy = {};
  const keys = Object.keys(value);
  for (let index = 0; index < keys.length; index += 1) {
    const key = keys[index];
    weight += key.length + 3;
    const item = copyOf(value[key], depth + 1);
    if (key === "__proto__") Object.defineProperty(copy, key, { value: item, enumerable: true });
    else copy[key] = item;
  }
  return copy;
}

/**
 * A message as the bus keeps it: checked, copied, its header frozen.
 *
 * @param message what was posted
 * @param id the id to give it if it has none
 * @param limit most bytes it may have as JSON, with those of the buffers in it
 * @throws TypeError for what is no message, RangeError for one that is larger than `limit`
 */
export function taken(message, id, limit = MAX_MESSAGE) {
  if (message === null || typeof message !== "object")
    throw new TypeError("A message is an object.");
  const { type, from, to, body } = message;
  if (typeof type !== "string" || !type)
    throw new TypeError("A message needs a type, which is a text.");
  if (typeof from !== "string" || !from)
    throw new TypeError("A message needs a from, which is a text.");
  if (typeof to !== "string" || !to) throw new TypeError("A message needs a to, which is a text.");
  if (message.id && typeof message.id === "object")
    throw new TypeError("An id is a number or a text.");
  weight = 64;
  hasBuffers = false;
  const copy = { id: message.id || id, type: lowered(type), from, to };
  if (body !== undefined) {
    if (body === null || typeof body !== "object") copy.body = copyOf(body);
    else copy.body = copyOf(body);
  }
  for (const key in message) if (!HEADER[key]) copy[key] = copyOf(message[key]);
  if ((weight + from.length + to.length) * 6 > limit && bytesOf(copy, hasBuffers) > limit) {
    throw new RangeError(`The message is larger than ${limit} bytes.`);
  }
  return Object.freeze(copy);
}

/** The same message for another holder. */
export function copyFor(message, changes) {
  const copy = { ...message, ...changes };
  if (message.body !== undefined && changes?.body === undefined) copy.body = copyOf(message.body);
  return Object.freeze(copy);
}

/** Bytes of a message as JSON in UTF-8, and of the buffers in it if it has any. */
export function bytesOf(message, isWithBuffers = false) {
  let inBuffers = 0;
  const aside = (_, value) => {
    if (!isBuffer(value)) return value;
    inBuffers += value.byteLength;
    return null;
  };
  const text = JSON.stringify(message, isWithBuffers ? aside : undefined);
  let bytes = text.length + inBuffers;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code > 0x7ff && (code < 0xd800 || code > 0xdfff)) bytes += 2;
    else if (code > 0x7f) bytes += 1;
  }
  return bytes;
}

/** The recipients named by `to`, each once. */
export function recipientsOf(to) {
  return Array.isArray(to) ? [...new Set(to)] : [to];
}

/** The code of an answer as a number. */
export function codeOf(body) {
  const code = body?.code;
  if (Number.isInteger(code)) return code;
  if (typeof code === "string") {
    if (/^\d{1,3}$/.test(code)) return Number(code);
    if (/^[1-5]XX$/i.test(code)) return Number(code[0]) * 100;
  }
  return 500;
}

/** The message without these fields of its body. */
export function without(message, fields) {
  const { body } = message;
  if (
    typeof body !== "object" ||
    body === null ||
    Array.isArray(body) ||
    !fields.some((each) => each in body)
  )
    return message;
  return {
    ...message,
    body: Object.fromEntries(Object.entries(body).filter(([key]) => !fields.includes(key))),
  };
}

/** The message without the marks that only the runtime's own node, or the runtime itself, may set. */
export function withoutMarks(message) {
  return without(message, MARKS);
}

/** Whether who sent this is told when it cannot be delivered. */
export function isAnswerable({ type, to }) {
  return type !== "response" && !(type === "update" && /\/(changes|status)$/.test(to));
}

/** An answer to a request. */
export function answerTo({ id, from, to }, body) {
  return { id, type: "response", from: to, to: from, body };
}

/** The body of an error answer. */
export function errorBody(code, text) {
  return { code, desc: text, description: text };
}

function isBuffer(value) {
  return value instanceof ArrayBuffer || ArrayBuffer.isView(value);
}

function lowered(type) {
  const lower = type.toLowerCase();
  return lower === type ? type : lower;
}
