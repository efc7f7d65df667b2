/** The children of a data object: what its observers add to it, such as the messages of a chat. Pure. */

import { plain, sizeOf } from "./changes.js";

const MAX_CHILDREN = 10_000;
const MAX_SIZE = 4 * 1024 * 1024; // bytes of all of them
const MAX_ID = 500; // characters
const PART = 50_000; // bytes of children that go with one answer
const MAX_DONE = 1_000; // requests of observers that are remembered
const MAX_ONCE = 64; // characters

/** The latest requests of observers that were done: one that is sent again is not done again. */
export class Done {
  #keys = new Set();

  /** @param once what the request is called; nothing where its sender has no name for it */
  has(from, once) {
    return typeof once === "string" && this.#keys.has(`${once} ${from}`);
  }

  add(from, once) {
    if (typeof once !== "string" || once.length > MAX_ONCE) return;
    this.#keys.add(`${once} ${from}`);
    if (this.#keys.size > MAX_DONE) this.#keys.delete(this.#keys.values().next().value);
  }
}

/** For reading only, as deep as it is. */
function frozen(value) {
  if (value === null || typeof value !== "object") return value;
  Object.values(value).forEach(frozen);
  return Object.freeze(value);
}

export class Children {
  #all = new Map(); // id -> {id, source, value}
  #sizes = new Map();
  #orders = new Map(); // id -> a number that grows
  #last = 0;
  #size = 0;

  get(id) {
    return this.#all.get(id);
  }

  /** All of them in the order in which they came: {id, source, value}, frozen. */
  list() {
    return [...this.#all.values()];
  }

  /**
   * Put a child in, or a new value in its place.
   *
   * @throws RangeError if there is no room, TypeError for what is no child
   */
  put(id, source, value) {
    if (typeof id !== "string" || !id || id.length > MAX_ID || id === "__proto__") {
      throw new TypeError(`The id of a child has 1 to ${MAX_ID} characters.`);
    }
    const child = frozen({ id, source, value: plain(value, false) });
    const size = sizeOf(child);
    const others = this.#size - (this.#sizes.get(id) ?? 0);
    if (others + size > MAX_SIZE || (!this.#all.has(id) && this.#all.size >= MAX_CHILDREN)) {
      throw new RangeError(
        `A data object has at most ${MAX_CHILDREN} children of ${MAX_SIZE} bytes together.`,
      );
    }
    if (!this.#all.has(id)) this.#orders.set(id, (this.#last += 1));
    this.#all.set(id, child);
    this.#sizes.set(id, size);
    this.#size = others + size;
    return child;
  }

  delete(id) {
    this.#size -= this.#sizes.get(id) ?? 0;
    this.#sizes.delete(id);
    this.#orders.delete(id);
    return this.#all.delete(id);
  }

  /** As they travel, in parts of at most 50,000 bytes each or one child. */
  parts() {
    const parts = [];
    let size = Infinity;
    for (const { id, source, value } of this.#all.values()) {
      size += this.#sizes.get(id);
      if (size > PART) {
        parts.push({});
        size = this.#sizes.get(id);
      }
      parts.at(-1)[id] = { resource: id, source, value, order: this.#orders.get(id) };
    }
    return parts;
  }

  /**
   * Take over what the reporter says there is.
   *
   * @param objects id -> {source, value, order: where it comes among the others; without one as they are listed,
   *   which objects in JavaScript do with numbers first}
   * @returns what has changed: [{type, id, source, value}]
   */
  replace(objects) {
    const changes = [];
    for (const { id, source, value } of this.list()) {
      if (Object.hasOwn(objects, id)) continue;
      this.delete(id);
      changes.push({ type: "delete", id, source, value });
    }
    const order = ([, { order }]) => (Number.isSafeInteger(order) ? order : 0);
    const told = Object.entries(objects).sort((one, other) => order(one) - order(other));
    for (const [id, each] of told) {
      if (typeof each !== "object" || Array.isArray(each))
        throw new TypeError(`Child ${id} is no object.`);
      const { source, value } = each;
      const known = this.#all.get(id);
      if (known && JSON.stringify(known.value) === JSON.stringify(value)) continue;
      const child = this.put(id, source, value ?? null);
      changes.push({ type: known ? "update" : "create", ...child });
    }
    return changes;
  }
}
