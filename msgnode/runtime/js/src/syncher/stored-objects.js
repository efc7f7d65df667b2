/**
 * Reported objects that are kept for resume(): in memory, and where there is a storage, over a restart.
 *
 * The copy follows the object's changes as any observer's does. It is written to the storage a quarter of
 * a second after a change; a storage that refuses is told to the error hook.
 */

import { newIncarnation } from "../ids.js";
import { applyChange } from "./changes.js";

const WRITE_AFTER = 250; // ms

export class StoredObjects {
  #bus;
  #storage;
  #key;
  #all = new Map(); // object -> {hyperty, schema, value, observers}
  #items = new Map(); // object -> listener
  #unwritten = new Set();
  #timer = null;

  /** @param storage {getItem, setItem, removeItem}, or none */
  constructor(bus, domain, storage) {
    this.#bus = bus;
    this.#storage = storage;
    this.#key = `msgnode.objects.${domain}`;
    for (const object of this.#read(this.#key) ?? []) {
      const stored = this.#read(`${this.#key}.${object}`);
      if (stored) this.#take(object, stored);
    }
  }

  get(object) {
    return this.#all.get(object);
  }

  of(hyperty) {
    return [...this.#all].filter(([, stored]) => stored.hyperty === hyperty);
  }

  keep(object, { hyperty, schema, value }) {
    this.#take(object, {
      hyperty,
      schema,
      value: structuredClone({ version: 0, childrenObjects: {}, ...value }),
    });
    this.#touch(object);
    this.#write(this.#key, [...this.#all.keys()]);
  }

  observed(object, observers) {
    const stored = this.#all.get(object);
    if (!stored) return;
    stored.observers = [...observers];
    this.#touch(object);
  }

  /** Resume an object: its last changes before a crash may not be in this copy. */
  beginAnew(object) {
    this.#all.get(object).value.incarnation = newIncarnation();
    this.#touch(object);
  }

  forget(object) {
    if (!this.#all.delete(object)) return;
    this.#items.get(object).remove();
    this.#items.delete(object);
    this.#unwritten.delete(object);
    this.#write(this.#key, [...this.#all.keys()]);
    this.#write(`${this.#key}.${object}`, undefined);
  }

  close() {
    if (this.#timer !== null) this.#bus.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#flush();
    for (const item of this.#items.values()) item.remove();
  }

  #take(object, stored) {
    this.#all.set(object, stored);
    const item = this.#bus.addListener(`${object}/changes`, ({ from, type, body }) => {
      if (from === object && type === "update" && body?.via === undefined)
        this.#follow(object, body);
    });
    this.#items.set(object, item);
  }

  #follow(object, change) {
    const { value } = this.#all.get(object);
    const number = change.version ?? change.childVersion;
    if (!(number > value.version)) return; // repeated
    value.version = number;
    value.lastModified = change.lastModified;
    if (change.childVersion === undefined) applyChange(value.data, change);
    else if (change.value === undefined) delete value.childrenObjects[change.resource];
    else {
      const { resource, childSource: source } = change;
      const { order = number } = value.childrenObjects[resource] ?? {};
      value.childrenObjects[resource] = { resource, source, value: change.value, order };
    }
    this.#touch(object);
  }

  #touch(object) {
    if (!this.#storage) return;
    this.#unwritten.add(object);
    this.#timer ??= this.#bus.clock.setTimeout(() => {
      this.#timer = null;
      this.#flush();
    }, WRITE_AFTER);
  }

  #flush() {
    for (const object of this.#unwritten)
      this.#write(`${this.#key}.${object}`, this.#all.get(object));
    this.#unwritten.clear();
  }

  #read(key) {
    try {
      return JSON.parse(this.#storage?.getItem(key) ?? "null");
    } catch (error) {
      this.#bus.report("storage.failed", { error });
      return null;
    }
  }

  #write(key, value) {
    try {
      if (value === undefined) this.#storage?.removeItem(key);
      else this.#storage?.setItem(key, JSON.stringify(value));
    } catch (error) {
      this.#bus.report("storage.failed", { error });
    }
  }
}
