/**
 * Changes of a data object as values: copying what may be in one, and applying a change to a copy. Pure.
 *
 * A change is {attribute: "a.b", value?, attributeType?, operation?}:
 * - with a value it sets the attribute, without one it removes it;
 * - `attributeType: "array"` with `operation` "add" puts the list `value` in at the index that the
 *   attribute ends with, with "remove" takes `value` items out from there.
 *
 * What does not fit the data (a path that is not there, an index beyond the end) is a BadChange: whoever
 * keeps a copy then knows that it is not the reporter's any more.
 */

import { bytesOf } from "../messages.js";

export const MAX_OBJECT = 600_000; // bytes of an object's data as JSON: it must fit into one message
const MAX_DEPTH = 100;
const HALF = /\p{Surrogate}/u; // of a pair: no message can carry it
const INDEX = /^(?:0|[1-9]\d{0,9})$/;

/** A change that does not fit the data it is for. */
export class BadChange extends Error {}

/**
 * A copy of a value that JSON can say.
 *
 * @param isOurs also look at names: one with a dot in it could not be told from a path
 * @param depth how deep the value lies in its object
 * @throws TypeError naming what cannot be in a data object
 */
export function plain(value, isOurs = true, depth = 0) {
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "string") return checkedText(value);
  if (typeof value === "number") {
    if (isOurs && Number.isInteger(value) && !Number.isSafeInteger(value))
      throw new TypeError(
        `A data object holds integers up to ${Number.MAX_SAFE_INTEGER}, not ${value}; use a text.`,
      );
    if (Number.isFinite(value)) return value;
    throw new TypeError(`A data object cannot hold ${value}.`);
  }
  if (typeof value !== "object")
    throw new TypeError(`A data object cannot hold a ${typeof value}.`);
  if (depth >= MAX_DEPTH) throw new TypeError(`A data object is at most ${MAX_DEPTH} layers deep.`);
  if (Array.isArray(value))
    return Array.from(value, (item) => plain(item === undefined ? null : item, isOurs, depth + 1));
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) {
    throw new TypeError(
      `A data object cannot hold a ${value.constructor?.name ?? "class's instance"}.`,
    );
  }
  const copy = {};
  for (const name of Object.keys(value)) {
    if (value[name] === undefined) continue;
    if (isOurs) checkName(name);
    else if (name === "__proto__") throw new TypeError("A data object has no attribute __proto__.");
    copy[checkedText(name)] = plain(value[name], isOurs, depth + 1);
  }
  return copy;
}

function checkedText(text) {
  if (HALF.test(text)) throw new TypeError("A data object cannot hold half of a surrogate pair.");
  return text;
}

/** @throws TypeError if an attribute cannot be called so */
export function checkName(name) {
  if (
    typeof name !== "string" ||
    !name ||
    name.includes(".") ||
    name === "__proto__" ||
    HALF.test(name)
  ) {
    throw new TypeError(
      `An attribute cannot be called ${JSON.stringify(String(name))}: no dot, not empty, not __proto__.`,
    );
  }
}

/** Bytes of a value as JSON in UTF-8. */
export function sizeOf(value) {
  return value === undefined ? 0 : bytesOf(value);
}

/**
 * Apply a change to data in place.
 *
 * @throws BadChange if it does not fit; the data is then as it was
 */
export function applyChange(data, { attribute, value, attributeType, operation }) {
  if (typeof attribute !== "string" || !attribute)
    throw new BadChange("A change names its attribute.");
  const path = attribute.split(".");
  const name = path.pop();
  const holder = path.reduce(stepInto, data);
  if (attributeType === "array" && (operation === "add" || operation === "remove")) {
    applyToArray(holder, name, operation, value, attribute, path.length);
  } else if (Array.isArray(holder)) {
    if (value === undefined || !INDEX.test(name) || Number(name) > holder.length)
      throw new BadChange(`${attribute} is not there.`);
    holder[Number(name)] = copied(value, path.length + 1);
  } else if (value !== undefined) {
    if (name === "__proto__") throw new BadChange("There is no attribute __proto__.");
    holder[name] = copied(value, path.length + 1);
  } else {
    if (!Object.hasOwn(holder, name)) throw new BadChange(`${attribute} is not there.`);
    delete holder[name];
  }
}

function stepInto(holder, name) {
  const next = Object.hasOwn(holder, name) ? holder[name] : undefined;
  if (next === null || typeof next !== "object")
    throw new BadChange(`There is nothing at ${name}.`);
  return next;
}

function applyToArray(list, name, operation, value, attribute, depth) {
  const index = INDEX.test(name) ? Number(name) : -1;
  if (!Array.isArray(list) || index < 0 || index > list.length)
    throw new BadChange(`${attribute} is no place in a list.`);
  if (operation === "remove") {
    if (!Number.isInteger(value) || value < 1 || index + value > list.length)
      throw new BadChange(`There are no ${value} items at ${attribute}.`);
    list.splice(index, value);
    return;
  }
  if (!Array.isArray(value)) throw new BadChange("What is added to a list is a list.");
  const items = copied(value, depth);
  const tail = list.splice(index);
  for (const item of items) list.push(item);
  for (const item of tail) list.push(item);
}

function copied(value, depth) {
  try {
    return plain(value, false, depth);
  } catch (error) {
    throw new BadChange(error.message);
  }
}
