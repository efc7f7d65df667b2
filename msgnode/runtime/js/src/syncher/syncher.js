/**
 * Data objects for a hyperty: it reports its own and observes those of others.
 *
 *   const syncher = new Syncher(runtime.addHyperty());
 *   const room = await syncher.create({ topic: "Picnic" });   // others observe room.url
 *   room.data.topic = "Picnic on Sunday";
 *
 *   const copy = await syncher.subscribe(url);
 *   copy.onChange(({ attribute, value }) => console.log(attribute, value));
 *
 * It speaks to the sync manager of its runtime (`<runtime URL>/sm`), which speaks to nodes and to other
 * runtimes; changes, children and reads it exchanges itself.
 */

import { domainOf } from "../addresses.js";
import { newIncarnation } from "../ids.js";
import { errorBody } from "../messages.js";
import { MAX_OBJECT, plain, sizeOf } from "./changes.js";
import { DataObjectObserver } from "./observer.js";
import { DataObjectReporter } from "./reporter.js";
import { Refusal, answer, answerInTime } from "./talk.js";

export class Syncher {
  #me;
  #bus;
  #sm;
  #runtimeURL;
  #home;
  #reporters = new Map(); // object -> DataObjectReporter
  #observers = new Map(); // object -> DataObjectObserver
  #subscribing = new Map(); // object -> promise of its observer
  #items = new Map(); // reporter or observer -> its listeners
  #invited = null;
  #away = new Set(); // domains whose stub has no connection
  #own;
  #isClosed = false;

  /**
   * @param hyperty {url, bus, runtimeURL}: what addHyperty() of a runtime returns, or what a component in a
   *   sandbox has
   */
  constructor({ url, bus, runtimeURL } = {}) {
    if (!url || !bus || !runtimeURL)
      throw new TypeError("A syncher needs a hyperty: {url, bus, runtimeURL}.");
    this.#me = url;
    this.#bus = bus;
    this.#runtimeURL = runtimeURL;
    this.#sm = `${runtimeURL}/sm`;
    this.#home = domainOf(runtimeURL);
    this.#own = [
      bus.addListener(url, (message) => this.#received(message)),
      bus.addListener(`${runtimeURL}/status`, (message) => this.#status(message)),
    ];
    bus.onClose?.(() => {
      for (const side of [...this.#observers.values(), ...this.#reporters.values()]) side.ended();
    });
  }

  /**
   * Report a new object.
   *
   * @param data a plain object; what JSON can say
   * @param options {name, schema, resources, scheme, url: an address to use again, store: keep it for
   *   resume(), domain_registration, domain_routing}
   * @returns its DataObjectReporter
   * @throws TypeError for what is no data, an error with a `code` if it cannot be had
   */
  async create(
    data,
    { name = "", schema = "", resources = [], scheme, url, store = false, ...more } = {},
  ) {
    if (data === null || typeof data !== "object" || Array.isArray(data))
      throw new TypeError("A data object is an object.");
    const copy = plain(data);
    if (sizeOf(copy) > MAX_OBJECT)
      throw new RangeError(`A data object has at most ${MAX_OBJECT} bytes.`);
    const value = {
      ...more,
      name,
      schema,
      resources,
      reporter: this.#me,
      incarnation: newIncarnation(),
      data: copy,
    };
    if (url) value.resource = url;
    const body = { resume: false, schema, scheme, store, value };
    return this.#ask("create", body, (told) =>
      this.#reporter({ resource: told.resource, schema, value }),
    );
  }

  /**
   * Observe an object.
   *
   * @param options {schema, identity}
   * @returns its DataObjectObserver
   * @throws an error with a `code`: 403 if the reporter refuses, 404 if there is no such object
   */
  subscribe(url, options = {}) {
    if (typeof url !== "string" || !domainOf(url))
      return Promise.reject(new TypeError(`${url} is no address of an object.`));
    const known = this.#observers.get(url);
    if (known?.status === "disconnected") known.check();
    if (known) return Promise.resolve(known);
    if (!this.#subscribing.has(url)) {
      this.#subscribing.set(
        url,
        this.#subscribe(url, options).finally(() => this.#subscribing.delete(url)),
      );
    }
    return this.#subscribing.get(url);
  }

  /**
   * Take invitations: `judge({url, schema, name, from, identity})` returns false or throws to decline, now or
   * later. Who accepts subscribes then. Resolves once the hyperty can be reached.
   */
  async onInvitation(judge) {
    this.#invited = judge;
    await this.#ask("execute", { method: "claim" });
  }

  /**
   * Go on with objects that this hyperty reported before, in this runtime or (created with `store`) before
   * its last start. Resolves with their reporters.
   *
   * @param criteria {resource, schema, name}: only those
   */
  async resume(criteria = {}) {
    try {
      return await this.#ask("create", { ...criteria, resume: true }, ({ value }) =>
        value.map((stored) => this.#reporters.get(stored.resource) ?? this.#again(stored)),
      );
    } catch (error) {
      if (error.code === 404) return [];
      throw error;
    }
  }

  /**
   * Observe again what this hyperty observed before, in this runtime or (with a storage) before its last start or
   * crash. Resolves with the observers of those objects that could be had; others are told to the error hook.
   */
  async resumeObservers(criteria = {}) {
    try {
      const known = await this.#ask(
        "subscribe",
        { ...criteria, resume: true },
        ({ value }) => value,
      );
      const all = known.map(({ resource, schema }) =>
        this.subscribe(resource, { schema }).catch((error) =>
          this.#bus.report("data.not-resumed", {
            error: new Error(`${resource}: ${error.message}`),
          }),
        ),
      );
      return (await Promise.all(all)).filter(Boolean);
    } catch (error) {
      if (error.code === 404) return [];
      throw error;
    }
  }

  /** Observe and report nothing any more; objects are not deleted. */
  async close() {
    this.#isClosed = true;
    for (const item of this.#own) item.remove();
    await Promise.allSettled(
      [...this.#observers.values()].map((observer) => {
        observer.ended();
        return this.#endObserving(observer.url, { keep: true });
      }),
    );
    for (const [url, reporter] of [...this.#reporters]) {
      reporter.ended();
      this.#forget(this.#reporters, url);
    }
  }

  // --- objects ------------------------------------------------------------------------------------

  /** Ask the sync manager. What `then` makes of the answer is made before any other message comes. */
  #ask(type, body, then = (told) => told) {
    return new Promise((resolve, reject) => {
      this.#bus.postMessage({ type, from: this.#me, to: this.#sm, body }, ({ body: told }) => {
        if (told.code < 200) return;
        if (told.code >= 300) {
          reject(
            new Refusal(
              told.code,
              told.desc ?? told.description ?? `The sync manager answered ${told.code}.`,
            ),
          );
          return;
        }
        try {
          resolve(then(told));
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  #reporter(stored) {
    const url = stored.resource;
    const end = { manager: this.#sm, object: () => this.#endReporting(url) };
    const reporter = new DataObjectReporter({ url: this.#me, bus: this.#bus, end }, stored);
    this.#reporters.set(url, reporter);
    this.#items.set(reporter, [
      this.#bus.addListener(url, (message) => reporter.received(message)),
      this.#bus.addListener(`${url}/children/`, (message) => reporter.receivedChild(message)),
    ]);
    return reporter;
  }

  #again(stored) {
    const reporter = this.#reporter(stored);
    reporter.announce();
    return reporter;
  }

  async #subscribe(url, { schema = "", identity }) {
    const end = {
      object: () => this.#endObserving(url),
      value: async () => (await this.#ask("subscribe", { resource: url, schema, identity })).value,
    };
    const observer = new DataObjectObserver(
      { url: this.#me, bus: this.#bus, home: this.#home, end },
      url,
    );
    const items = [
      this.#bus.addListener(`${url}/changes`, (message) => {
        observer.received(message);
        if (message.type === "delete") this.#ended(message, url);
      }),
      this.#bus.addListener(`${url}/children/`, (message) => observer.receivedChild(message)),
    ];
    try {
      const told = await this.#ask("subscribe", { resource: url, schema, identity });
      const value = told.value?.responses > 1 ? await observer.readWhole() : told.value;
      if (this.#isClosed) throw new Refusal(503, "The syncher was closed meanwhile.");
      observer.start(value, told.schema);
    } catch (error) {
      for (const item of items) item.remove();
      observer.ended();
      const isOver = error.code === 403 || error.code === 404;
      await this.#ask("unsubscribe", { resource: url, keep: !isOver }).catch(() => {});
      throw error;
    }
    this.#observers.set(url, observer);
    this.#items.set(observer, items);
    return observer;
  }

  #ended(message, url) {
    if (this.#observers.get(url)?.status !== "ended") return;
    answer(this.#bus, message, { code: 200, source: this.#me });
    this.#endObserving(url).catch(() => {});
  }

  async #endObserving(url, more = {}) {
    this.#forget(this.#observers, url);
    await this.#ask("unsubscribe", { resource: url, ...more });
  }

  async #endReporting(url) {
    await this.#ask("delete", { resource: url });
    this.#forget(this.#reporters, url);
  }

  /** One side of an object; a hyperty may have both. */
  #forget(known, url) {
    const it = known.get(url);
    for (const item of this.#items.get(it) ?? []) item.remove();
    this.#items.delete(it);
    known.delete(url);
  }

  // --- what comes ---------------------------------------------------------------------------------

  #received(message) {
    const { type, from, body } = message;
    if (type === "forward") this.#forwarded(message);
    else if (type === "execute" && from === `${this.#runtimeURL}/registry/`) this.#leave(message);
    else if (type === "create" && from.endsWith("/subscription")) {
      answerInTime(this.#bus, message, () => {
        if (!this.#invited) throw new Refusal(403, "This hyperty takes no invitations.");
        const url = from.slice(0, -"/subscription".length);
        const decided = this.#invited({
          url,
          schema: body?.schema,
          name: body?.value?.name,
          from: body?.source,
          identity: body?.identity,
        });
        const told = (isTaken) =>
          isTaken === false ? errorBody(403, "The invitation was declined.") : { code: 200 };
        return typeof decided?.then === "function" ? decided.then(told) : told(decided);
      });
    }
  }

  /** The runtime is about to close, and waits for an answer, though not for long. Others here may want to use that time. */
  async #leave(message) {
    if (message.body?.via !== undefined || this.#bus.listenersOf(this.#me).length > 1) return;
    await this.close();
    answer(this.#bus, message, { code: 200 });
  }

  /** Only the runtime itself asks a reporter. */
  #forwarded(message) {
    const reporter = message.body?.via === undefined && this.#reporters.get(message.from);
    if (reporter) reporter.forwarded(message);
    else answer(this.#bus, message, errorBody(404, `${message.from} is not reported here.`));
  }

  /** A stub came back, or says that something was lost: both sides of its objects make sure. */
  #status({ from, body }) {
    if (from !== this.#runtimeURL || typeof body?.resource !== "string") return;
    const domain = domainOf(body.resource);
    const isOf = (url) => domain === this.#home || domain === domainOf(url);
    const { value } = body;
    if (value === "disconnected" || value === "failed") {
      this.#away.add(domain);
      for (const [url, observer] of this.#observers)
        if (domain === domainOf(url)) observer.disconnected();
    } else if (value === "gap" || (value === "live" && this.#away.delete(domain))) {
      for (const [url, reporter] of this.#reporters) if (isOf(url)) reporter.repeat();
      for (const [url, observer] of this.#observers) if (isOf(url)) observer.check();
    }
  }
}
