/**
 * Frames of a P2P channel: JSON texts, read tolerantly and written strictly. Pure.
 *
 *     {uuid, seq, ack?, data: {uuid, sendingTime, dataSize: 0, textMessage: <message>}}
 *     {uuid, seq, ack?, part: [i, n], text}      piece i of n (from 0) of a message that is too long
 *     {ack}  {fenceAck}  {ping}  {pong}  {bye}
 *
 * A frame without `seq` is one of the field's, which counts nothing.
 */

export const PIECE = 16_384; // characters of one piece
const MAX_MESSAGE = 1024 * 1024;
const MAX_PIECES = (2 * MAX_MESSAGE) / PIECE;
export const BYES = ["idle", "closing", "forbidden"];
const SIGNS = ["fenceAck", "ack", "ping", "pong"];

/** A frame that cannot be read; the text names what is wrong. */
export class BadFrame extends Error {}

/** The frames of one message: one, or its pieces. */
export function write(seq, message, ack = 0) {
  const uuid = seq.toString(16).padStart(12, "0").slice(-12);
  const head = ack ? { uuid, seq, ack } : { uuid, seq };
  const text = JSON.stringify(message);
  if (text.length <= PIECE) {
    return [JSON.stringify({ ...head, data: { uuid, sendingTime: Date.now(), dataSize: 0, textMessage: message } })];
  }
  const count = Math.ceil(text.length / PIECE);
  return Array.from({ length: count }, (_, index) =>
    JSON.stringify({ ...head, part: [index, count], text: text.slice(index * PIECE, (index + 1) * PIECE) }),
  );
}

/** The frame of a sign. */
export function sign(kind, value) {
  return JSON.stringify({ [kind]: value });
}

/**
 * What a frame says: {kind: "data", seq, ack, message}, {kind: "piece", seq, ack, index, count, text} or
 * {kind: "ack" | "fenceAck" | "ping" | "pong" | "bye", value}.
 *
 * @throws BadFrame
 */
export function read(text) {
  if (typeof text !== "string") throw new BadFrame("The frame is not a text.");
  const frame = parsed(text, "The frame is not JSON.");
  if (!isObject(frame)) throw new BadFrame("The frame is not an object.");
  if ("part" in frame) return pieceOf(frame);
  if ("data" in frame) return dataOf(frame);
  for (const kind of SIGNS) {
    if (!(kind in frame)) continue;
    return { kind, value: kind === "fenceAck" || kind === "ack" ? countOf(frame, kind) : frame[kind] };
  }
  if ("bye" in frame) return { kind: "bye", value: BYES.includes(frame.bye) ? frame.bye : "closing" };
  throw new BadFrame("The frame is none that is known.");
}

/** The message of its pieces. Throws BadFrame. */
export function join(pieces) {
  const message = parsed(pieces.join(""), "The pieces make no JSON.");
  if (!isObject(message)) throw new BadFrame("The pieces make no message.");
  return message;
}

function dataOf(frame) {
  const message = isObject(frame.data) ? frame.data.textMessage : undefined;
  if (!isObject(message)) throw new BadFrame("The frame has no message.");
  return { kind: "data", seq: countOf(frame, "seq"), ack: countOf(frame, "ack"), message };
}

function pieceOf(frame) {
  const { part, text } = frame;
  const seq = countOf(frame, "seq");
  // Others count characters beyond the basic plane as one each.
  if (typeof text !== "string" || text.length > 2 * PIECE || !seq) {
    throw new BadFrame("The piece lacks its text or number, or is too long.");
  }
  if (!Array.isArray(part) || part.length !== 2 || !part.every(isCount)) throw new BadFrame("The field `part` is not two counts.");
  const [index, count] = part;
  if (index >= count || count > MAX_PIECES) throw new BadFrame("The field `part` names no piece.");
  return { kind: "piece", seq, ack: countOf(frame, "ack"), index, count, text };
}

function parsed(text, wrong) {
  try {
    return JSON.parse(text);
  } catch {
    throw new BadFrame(wrong);
  }
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function countOf(frame, name) {
  const value = Object.hasOwn(frame, name) ? frame[name] : 0;
  if (!isCount(value)) throw new BadFrame(`The field \`${name}\` is not a count.`);
  return value;
}

function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0;
}
