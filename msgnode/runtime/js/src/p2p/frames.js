/**
 * Frames of a P2P channel: JSON texts, read tolerantly and written strictly. Pure.
 *
 *     {uuid, seq, ack?, data: {uuid, sendingTime, dataSize: 0, textMessage: <message>}}
 *     {uuid, seq, ack?, part: [i, n], text}      piece i of n (from 0) of a message that is too long
 *     {uuid, data: <text>}, <uuid><bytes>        piece of a content
 *     {ack}  {fenceAck}  {ping}  {pong}  {bye}
 *
 * A frame without `seq` is one of the field's, which counts nothing. See docs/reference/p2p.md, section 4.
 */

import { answerTo, errorBody } from "../messages.js";

export const PIECE = 16_384; // characters of one piece, and bytes of one of a content
const MAX_MESSAGE = 1024 * 1024;
const MAX_PIECES = (2 * MAX_MESSAGE) / PIECE;
const UUID = 12; // characters that we write, and that stand before bytes
const MAX_UUID = 64;
export const BYES = ["idle", "closing", "forbidden"];
const MAX_TRANSFERS = 8; // at a time, on one channel
const PROGRESS = errorBody(183, "Message reception is progressing");
const SIGNS = ["fenceAck", "ack", "ping", "pong"];

/** A frame that cannot be read; the text names what is wrong. */
export class BadFrame extends Error {}

/** The frames of one message: one, or its pieces; bytes come behind. */
export function write(seq, message, ack = 0) {
  const uuid = seq.toString(16).padStart(UUID, "0").slice(-UUID);
  const head = ack ? { uuid, seq, ack } : { uuid, seq };
  if (contentOf(message)) return written(head, message);
  const text = JSON.stringify(message);
  if (text.length <= PIECE) return written(head, message);
  const count = Math.ceil(text.length / PIECE);
  return Array.from({ length: count }, (_, index) =>
    JSON.stringify({
      ...head,
      part: [index, count],
      text: text.slice(index * PIECE, (index + 1) * PIECE),
    }),
  );
}

/** The frames of one message for the field, which counts nothing. */
export function writePlain(uuid, message) {
  return written({ uuid }, message);
}

/** A message in one frame, and what of it is bytes behind that. */
function written(head, message) {
  const { uuid } = head;
  const content = contentOf(message);
  const dataSize = content?.byteLength ?? 0;
  const data = {
    uuid,
    sendingTime: Date.now(),
    dataSize,
    textMessage: content ? withoutContent(message) : message,
  };
  if (!content) return [JSON.stringify({ ...head, data })];
  if (!dataSize) data.binary = true;
  const behind = [];
  for (let at = 0; at < dataSize; at += PIECE) {
    const piece = content.subarray(at, at + PIECE);
    const frame = new Uint8Array(2 * UUID + piece.byteLength);
    for (let index = 0; index < UUID; index += 1) {
      const code = uuid.charCodeAt(index);
      [frame[2 * index], frame[2 * index + 1]] = [code & 255, code >> 8];
    }
    frame.set(piece, 2 * UUID);
    behind.push(frame.buffer);
  }
  return [JSON.stringify({ ...head, data }), ...behind];
}

/** The content of a message, if that is bytes, which JSON cannot carry; else null. */
export function contentOf({ body }) {
  const content = body?.value?.content;
  if (content instanceof ArrayBuffer) return new Uint8Array(content);
  return ArrayBuffer.isView(content)
    ? new Uint8Array(content.buffer, content.byteOffset, content.byteLength)
    : null;
}

function withoutContent(message) {
  const { content: _, ...value } = message.body.value;
  return { ...message, body: { ...message.body, value } };
}

/** The message with a content. */
export function withContent(message, content) {
  const body = isObject(message.body) ? message.body : {};
  return {
    ...message,
    body: { ...body, value: { ...(isObject(body.value) ? body.value : {}), content } },
  };
}

/** The frame of a sign. */
export function sign(kind, value) {
  return JSON.stringify({ [kind]: value });
}

/**
 * What a frame says: {kind: "data", seq, ack, message}, {kind: "begun", seq, ack, message, uuid, size},
 * {kind: "text" | "bytes", uuid, piece}, {kind: "piece", seq, ack, index, count, text} or
 * {kind: "ack" | "fenceAck" | "ping" | "pong" | "bye", value}.
 *
 * @throws BadFrame
 */
export function read(text) {
  if (text instanceof ArrayBuffer) return bytesOf(text);
  if (typeof text !== "string") throw new BadFrame("The frame is not a text.");
  const frame = parsed(text, "The frame is not JSON.");
  if (!isObject(frame)) throw new BadFrame("The frame is not an object.");
  if ("part" in frame) return pieceOf(frame);
  if ("data" in frame) return dataOf(frame);
  for (const kind of SIGNS) {
    if (!(kind in frame)) continue;
    return {
      kind,
      value: kind === "fenceAck" || kind === "ack" ? countOf(frame, kind) : markOf(frame[kind]),
    };
  }
  if ("bye" in frame)
    return { kind: "bye", value: BYES.includes(frame.bye) ? frame.bye : "closing" };
  throw new BadFrame("The frame is none that is known.");
}

/** The message of its pieces. Throws BadFrame. */
export function join(pieces) {
  const message = parsed(pieces.join(""), "The pieces make no JSON.");
  if (!isObject(message)) throw new BadFrame("The pieces make no message.");
  return message;
}

function dataOf(frame) {
  const { data, uuid } = frame;
  if (typeof data === "string") return { kind: "text", uuid: checked(uuid), piece: data };
  const message = isObject(data) ? data.textMessage : undefined;
  if (!isObject(message)) throw new BadFrame("The frame has no message.");
  const [seq, ack, size] = [
    countOf(frame, "seq"),
    countOf(frame, "ack"),
    countOf(data, "dataSize"),
  ];
  if (!size)
    return {
      kind: "data",
      seq,
      ack,
      message: data.binary === true ? withContent(message, new ArrayBuffer(0)) : message,
    };
  if (size > MAX_MESSAGE) throw new BadFrame("The content is too large.");
  return { kind: "begun", seq, ack, message, uuid: checked(uuid), size };
}

function checked(uuid) {
  if (typeof uuid !== "string" || !uuid || uuid.length > MAX_UUID)
    throw new BadFrame("The frame lacks its uuid.");
  return uuid;
}

function bytesOf(data) {
  const bytes = new Uint8Array(data);
  if (bytes.byteLength < 2 * UUID) throw new BadFrame("The bytes do not begin with a uuid.");
  const codes = Array.from(
    { length: UUID },
    (_, index) => bytes[2 * index] | (bytes[2 * index + 1] << 8),
  );
  return { kind: "bytes", uuid: String.fromCharCode(...codes), piece: data.slice(2 * UUID) };
}

function pieceOf(frame) {
  const { part, text } = frame;
  const seq = countOf(frame, "seq");
  // Others count characters beyond the basic plane as one each.
  if (typeof text !== "string" || text.length > 2 * PIECE || !seq) {
    throw new BadFrame("The piece lacks its text or number, or is too long.");
  }
  if (!Array.isArray(part) || part.length !== 2 || !part.every(isCount))
    throw new BadFrame("The field `part` is not two counts.");
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

/** What a ping says is given back: a number, or a text that is not long. */
function markOf(value) {
  if (typeof value === "number" || (typeof value === "string" && value.length <= MAX_UUID))
    return value;
  throw new BadFrame("The ping says neither a number nor a short text.");
}

function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0;
}

/** A content that arrives. */
export class Transfer {
  #begun;
  #pieces = [];
  #left;
  #percent = 0;

  /** @param begun the frame before it */
  constructor(begun) {
    this.#begun = begun;
    this.#left = begun.size;
  }

  /** Take a piece; whether it was the last one. Throws BadFrame. */
  add({ kind, piece }) {
    const size = kind === "bytes" ? piece.byteLength : piece.length;
    if (this.#pieces.length && typeof piece !== typeof this.#pieces[0])
      throw new BadFrame("A content is text or bytes, not both.");
    if (!size || size > this.#left)
      throw new BadFrame("A piece of a content is empty, or more than was to come.");
    this.#pieces.push(piece);
    this.#left -= size;
    return this.#left === 0;
  }

  /** A provisional answer to who waits for this one, when the percentage has grown; else null. */
  progress() {
    const { message, size } = this.#begun;
    const percent = Math.trunc((100 * (size - this.#left)) / size);
    const isAnswer = message.type === "response" && typeof message.from === "string";
    if (!isAnswer || percent <= this.#percent) return null;
    this.#percent = percent;
    return answerTo(
      { ...message, from: message.to, to: message.from },
      { ...PROGRESS, value: percent },
    );
  }

  /** The message as it was sent. */
  message() {
    const [first] = this.#pieces;
    if (typeof first === "string") return withContent(this.#begun.message, this.#pieces.join(""));
    const whole = new Uint8Array(this.#begun.size);
    let at = 0;
    for (const piece of this.#pieces) {
      whole.set(new Uint8Array(piece), at);
      at += piece.byteLength;
    }
    return withContent(this.#begun.message, whole.buffer);
  }
}

/** The contents that arrive on one channel without numbers, several at a time. */
export class Transfers {
  #all = new Map(); // uuid -> Transfer

  /** A message whose content follows. Throws BadFrame. */
  begin(begun) {
    if (this.#all.has(begun.uuid) || this.#all.size >= MAX_TRANSFERS)
      throw new BadFrame("The content is under way, or too many are.");
    this.#all.set(begun.uuid, new Transfer(begun));
  }

  /** A piece. Returns what it makes: the message, progress, or null. Throws BadFrame. */
  add(frame) {
    const transfer = this.#all.get(frame.uuid);
    if (!transfer) throw new BadFrame("No content of this uuid is under way.");
    let isLast;
    try {
      isLast = transfer.add(frame);
    } catch (error) {
      this.#all.delete(frame.uuid);
      throw error;
    }
    if (!isLast) return transfer.progress();
    this.#all.delete(frame.uuid);
    return transfer.message();
  }
}
