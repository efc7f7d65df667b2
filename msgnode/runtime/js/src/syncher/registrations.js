/**
 * Keeps data objects in the domain registry, so that others find them.
 *
 * An object works without: a registry that refuses or is away is told to the error hook, and asked again
 * with the next refresh.
 */

const EXPIRES = 3600; // s
const REFRESH = (EXPIRES / 2.2) * 1000; // ms

export class Registrations {
  #bus;
  #to;
  #from;
  #objects = new Map(); // object -> what is registered
  #timer = null;
  #isClosed = false;

  constructor(bus, domain) {
    this.#bus = bus;
    this.#to = `domain://registry.${domain}`;
    this.#from = `${bus.runtimeURL}/registry/`;
  }

  add(object, { hyperty, name, schema, resources = [] }) {
    const dataSchemes = [object.slice(0, object.indexOf(":"))];
    const value = {
      url: object,
      name,
      schema,
      reporter: hyperty,
      resources,
      dataSchemes,
      status: "live",
      expires: EXPIRES,
      runtime: this.#bus.runtimeURL,
      ...this.#bus.registeredWith,
    };
    this.#objects.set(object, value);
    this.#ask("create", { value, policy: "policy" });
    this.#arm();
  }

  remove(object) {
    if (!this.#objects.delete(object)) return;
    this.#ask("update", { resource: object, value: { status: "disconnected" } });
  }

  close() {
    this.#isClosed = true;
    if (this.#timer !== null) this.#bus.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#objects.clear();
  }

  #arm() {
    this.#timer ??= this.#bus.clock.setTimeout(() => {
      this.#timer = null;
      for (const object of this.#objects.keys()) this.#refresh(object);
      if (this.#objects.size) this.#arm();
    }, REFRESH);
  }

  #refresh(object) {
    const again = () =>
      this.#objects.has(object) &&
      this.#ask("create", { value: this.#objects.get(object), policy: "policy" });
    this.#ask("update", { resource: object, value: { status: "live" }, method: "refresh" }, again);
  }

  #ask(type, body, onUnknown) {
    this.#bus.postMessage({ type, from: this.#from, to: this.#to, body }, ({ body: told }) => {
      if (told.code < 300 || this.#isClosed) return;
      if (told.code === 404 && onUnknown) onUnknown();
      else
        this.#bus.report("data.not-registered", {
          error: new Error(
            `${this.#to} answered ${told.code}: ${told.desc ?? told.description ?? ""}`,
          ),
        });
    });
  }
}
