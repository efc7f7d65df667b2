/**
 * Keeps hyperties and data objects in the domain registry, so that others find them.
 *
 * Rules
 * - A sign of life is given before an entry expires, and when the home stub is back after it was away: the registry ends
 *   what a lost session had registered. What the registry does not know any more is registered again.
 * - A data object works without: a registry that refuses or is away is told to the error hook, and asked again with the
 *   next sign of life.
 */

import { domainOf } from "../addresses.js";
import { askUntilAnswered } from "./talk.js";

const EXPIRES = 3600; // s
const REFRESH = (EXPIRES / 2.2) * 1000; // ms

export class Registrations {
  #bus;
  #domain;
  #to;
  #from;
  #entries = new Map(); // url -> what is registered
  #timer = null;
  #isAway = false;
  #isClosed = false;
  #item;

  constructor(bus, domain) {
    this.#bus = bus;
    this.#domain = domain;
    this.#to = `domain://registry.${domain}`;
    this.#from = `${bus.runtimeURL}/registry/`;
    this.#item = bus.addListener(`${bus.runtimeURL}/status`, ({ body }) => this.#status(body));
  }

  /** Register a data object, now or with the next sign of life. */
  add(object, { hyperty, name, schema, resources = [] }) {
    const dataSchemes = [object.slice(0, object.indexOf(":"))];
    const value = { url: object, name, schema, reporter: hyperty, resources, dataSchemes };
    this.register(value).catch((error) => this.#report(error.body));
  }

  /**
   * Register `value`, which has a url, and keep it registered until remove().
   *
   * @returns promise that rejects with {body} of the answer, if the registry refuses it
   */
  async register(value) {
    const whole = {
      ...value,
      status: "live",
      expires: EXPIRES,
      runtime: this.#bus.runtimeURL,
      ...this.#bus.registeredWith,
    };
    this.#entries.set(value.url, whole);
    this.#arm();
    await this.#ask("create", { value: whole, policy: "policy" });
  }

  /** Whether an address is registered, or will be with the next sign of life. */
  has(url) {
    return this.#entries.has(url);
  }

  /** The entry is there no more; resolves once the registry knows it, or does not answer. */
  async remove(url) {
    if (!this.#entries.delete(url)) return;
    const body = { resource: url, value: { status: "disconnected" } };
    await this.#ask("update", body).catch((error) => this.#report(error.body));
  }

  close() {
    this.#isClosed = true;
    this.#item.remove();
    if (this.#timer !== null) this.#bus.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#entries.clear();
  }

  #arm() {
    this.#timer ??= this.#bus.clock.setTimeout(() => {
      this.#timer = null;
      this.#refreshAll();
      if (this.#entries.size) this.#arm();
    }, REFRESH);
  }

  #status({ value, resource, peer } = {}) {
    if (typeof resource !== "string" || peer || domainOf(resource) !== this.#domain) return;
    if (value === "disconnected") this.#isAway = true;
    else if (value === "gap" || (value === "live" && this.#isAway)) {
      this.#isAway = false;
      this.#refreshAll();
    }
  }

  #refreshAll() {
    for (const url of this.#entries.keys()) this.#refresh(url);
  }

  #refresh(url) {
    const body = { resource: url, value: { status: "live" }, method: "refresh" };
    const again = (error) => {
      if (error.body.code !== 404) throw error;
      const value = this.#entries.get(url);
      return value && this.#ask("create", { value, policy: "policy" });
    };
    this.#ask("update", body)
      .catch(again)
      .catch((error) => this.#report(error.body));
  }

  #ask(type, body) {
    return new Promise((resolve, reject) => {
      const message = { type, from: this.#from, to: this.#to, body };
      askUntilAnswered(this.#bus, message, ({ body: told }) => {
        if (told.code >= 300) reject({ body: told });
        else if (told.code >= 200) resolve(told);
      });
    });
  }

  #report({ code, desc, description }) {
    if (this.#isClosed) return;
    const error = new Error(`${this.#to} answered ${code}: ${desc ?? description ?? ""}`);
    this.#bus.report("data.not-registered", { error });
  }
}
