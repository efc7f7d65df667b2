/**
 * What hyperties observe, for resumeObservers(): in memory, and where there is a storage, over a restart or a crash.
 *
 * It is one entry of the storage, written a quarter of a second after a change; a storage that refuses is told to the
 * error hook.
 */

const WRITE_AFTER = 250; // ms
const MAX_KEPT = 10_000; // subscriptions; of more than that those that were made last

export class StoredSubscriptions {
  #bus;
  #storage;
  #key;
  #all = new Map(); // hyperty and object -> {hyperty, object, schema, name}
  #timer = null;

  /** @param storage {getItem, setItem}, or none */
  constructor(bus, domain, storage) {
    [this.#bus, this.#storage, this.#key] = [bus, storage, `msgnode.observed.${domain}`];
    for (const each of this.#read())
      if (typeof each?.hyperty === "string" && typeof each.object === "string")
        this.#all.set(keyOf(each.hyperty, each.object), each);
  }

  /** What a hyperty observes: pairs of an object and {schema, name}. */
  of(hyperty) {
    return [...this.#all.values()]
      .filter((each) => each.hyperty === hyperty)
      .map((each) => [each.object, each]);
  }

  keep(hyperty, object, { schema, name }) {
    const key = keyOf(hyperty, object);
    this.#all.delete(key);
    this.#all.set(key, { hyperty, object, schema, name });
    if (this.#all.size > MAX_KEPT) this.#all.delete(this.#all.keys().next().value);
    this.#touch();
  }

  forget(hyperty, object) {
    if (this.#all.delete(keyOf(hyperty, object))) this.#touch();
  }

  close() {
    if (this.#timer === null) return;
    this.#bus.clock.clearTimeout(this.#timer);
    this.#write();
  }

  #touch() {
    if (this.#storage) this.#timer ??= this.#bus.clock.setTimeout(() => this.#write(), WRITE_AFTER);
  }

  #write() {
    this.#timer = null;
    try {
      this.#storage.setItem(this.#key, JSON.stringify([...this.#all.values()]));
    } catch (error) {
      this.#bus.report("storage.failed", { error });
    }
  }

  #read() {
    try {
      const kept = JSON.parse(this.#storage?.getItem(this.#key) ?? "[]");
      return Array.isArray(kept) ? kept : [];
    } catch (error) {
      this.#bus.report("storage.failed", { error });
      return [];
    }
  }
}

function keyOf(hyperty, object) {
  return `${hyperty}\n${object}`;
}
