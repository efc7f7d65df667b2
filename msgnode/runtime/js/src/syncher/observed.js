/**
 * A plain object that is observed: whoever changes it, anywhere in it, is seen to.
 *
 *   const observed = observe({ title: "Picnic", guests: [] }, sink);
 *   observed.guests.push("Bob");   // sink.changed({attribute: "guests.0", attributeType: "array", operation: "add", value: ["Bob"]})
 *
 * Rules
 * - What is put in is copied: an object belongs to one place of one data object.
 * - Only what JSON can say is taken; anything else is a TypeError, and nothing has changed.
 * - A part that was taken out, or replaced, cannot be changed any more.
 */

import { checkName, plain } from "./changes.js";

const INDEX = /^(?:0|[1-9]\d*)$/;
const AS_A_WHOLE = ["sort", "reverse", "fill", "copyWithin"];

/**
 * @param data a plain object that nobody else holds
 * @param sink {admit(value): throws if it cannot be taken, changed(change), isEnded: nothing is changed any more};
 *   null: only for reading
 * @returns its proxy
 */
export function observe(data, sink) {
  return new Observed(data, sink).proxyOf(data, null, "");
}

class Observed {
  #root;
  #sink;
  #nodes = new WeakMap(); // part -> {proxy, parent, name}
  #handler = {
    get: (target, name) => this.#get(target, name),
    set: (target, name, value) => this.#set(target, name, value),
    deleteProperty: (target, name) => this.#delete(target, name),
    defineProperty: () => refuse("Assign a value: a property cannot be defined in a data object."),
    setPrototypeOf: () => refuse("A data object has no prototype to set."),
    preventExtensions: () => false,
  };

  constructor(root, sink) {
    this.#root = root;
    this.#sink = sink;
  }

  proxyOf(target, parent, name) {
    const known = this.#nodes.get(target);
    if (known) {
      known.name = name; // it may have moved within a list
      return known.proxy;
    }
    const proxy = new Proxy(target, this.#handler);
    this.#nodes.set(target, { proxy, parent, name });
    return proxy;
  }

  #get(target, name) {
    if (Array.isArray(target) && !Object.hasOwn(target, name)) {
      if (name === "splice") return (...args) => this.#splice(target, ...args);
      if (name === "push")
        return (...items) => (this.#splice(target, target.length, 0, ...items), target.length);
      if (name === "unshift")
        return (...items) => (this.#splice(target, 0, 0, ...items), target.length);
      if (name === "pop") return () => this.#splice(target, -1, 1)[0];
      if (name === "shift") return () => this.#splice(target, 0, 1)[0];
      if (AS_A_WHOLE.includes(name)) return (...args) => this.#rewrite(target, name, args);
    }
    const value = target[name];
    const isPart = value !== null && typeof value === "object" && Object.hasOwn(target, name);
    return isPart ? this.proxyOf(value, target, name) : value;
  }

  #set(target, name, value) {
    const path = this.#pathOf(target);
    if (value === undefined) return this.#delete(target, name);
    if (Array.isArray(target)) return this.#setItem(target, name, value);
    checkName(name);
    if (value === target[name] && typeof value !== "object") return true;
    const copy = plain(value, true, path.length + 1);
    this.#sink.admit(copy);
    target[name] = copy;
    this.#sink.changed({ attribute: [...path, name].join("."), value: copy });
    return true;
  }

  #setItem(target, name, value) {
    if (name === "length") {
      if (value > target.length || !Number.isInteger(value) || value < 0)
        refuse("A list in a data object has no holes.");
      if (value < target.length) this.#splice(target, value);
      return true;
    }
    if (typeof name !== "string" || !INDEX.test(name) || Number(name) > target.length)
      refuse("A list in a data object has no holes, and nothing but items.");
    if (Number(name) === target.length) this.#splice(target, target.length, 0, value);
    else if (value !== target[name] || typeof value === "object") {
      const path = this.#pathOf(target);
      const copy = plain(value, true, path.length + 1);
      this.#sink.admit(copy);
      target[name] = copy;
      this.#sink.changed({ attribute: [...path, name].join("."), value: copy });
    }
    return true;
  }

  #delete(target, name) {
    const path = this.#pathOf(target);
    if (Array.isArray(target)) refuse("Take an item out of a list with splice().");
    if (!Object.hasOwn(target, name)) return true;
    delete target[name];
    this.#sink.changed({ attribute: [...path, name].join(".") });
    return true;
  }

  #splice(target, ...args) {
    const path = this.#pathOf(target);
    const [start = 0, count = args.length ? Infinity : 0, ...items] = args;
    const index = start < 0 ? Math.max(0, target.length + start) : Math.min(start, target.length);
    const added = plain(items, true, path.length);
    if (added.length) this.#sink.admit(added);
    const removed = target.splice(
      index,
      Math.max(0, Math.min(count, target.length - index)),
      ...added,
    );
    const change = { attribute: [...path, index].join("."), attributeType: "array" };
    if (removed.length)
      this.#sink.changed({ ...change, operation: "remove", value: removed.length });
    if (added.length) this.#sink.changed({ ...change, operation: "add", value: added });
    return removed;
  }

  /** What moves items about is told as a new list. */
  #rewrite(target, method, args) {
    const path = this.#pathOf(target);
    const whole = plain(Array.prototype[method].apply([...target], args), true, path.length);
    this.#sink.admit(whole);
    target.splice(0, target.length, ...whole);
    this.#sink.changed({ attribute: path.join("."), value: whole });
    return this.#nodes.get(target).proxy;
  }

  /** The names that lead to a part, which is then one that can be changed. */
  #pathOf(target) {
    if (!this.#sink) refuse("Only its reporter changes this object.");
    if (this.#sink.isEnded) refuse("The object has ended.");
    const path = [];
    for (let part = target; part !== this.#root;) {
      const { parent, name } = this.#nodes.get(part);
      const found = Array.isArray(parent)
        ? parent.indexOf(part)
        : parent[name] === part
          ? name
          : -1;
      if (found === -1) refuse("This part has been taken out of its data object.");
      path.unshift(String(found));
      part = parent;
    }
    return path;
  }
}

function refuse(text) {
  throw new TypeError(text);
}
