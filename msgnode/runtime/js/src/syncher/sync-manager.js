/**
 * The sync manager of a runtime, `<runtime URL>/sm`: claims the addresses of data objects at nodes,
 * subscribes for observers, and asks reporters about who wants to subscribe.
 *
 * | message to it, from a hyperty here | |
 * |---|---|
 * | `create {schema, value}`                 | a new object: its address, claimed at the node and registered |
 * | `create {resource, authorise: [X]}`      | an invitation for X; its answer is X's |
 * | `create`, `subscribe` with `resume: true` | what the hyperty reports, observes |
 * | `subscribe {resource}`                   | 100, then 200 with the object's value, or the reporter's no |
 * | `unsubscribe {resource}`, `delete {resource}` | the end of either |
 * | `execute {method: "claim"}`              | have the home node deliver what is for the hyperty |
 *
 * Rules
 * - It serves hyperties of this runtime alone; an object's reporter is who created it.
 * - Listeners stand before subscriptions are made, so that nothing falls between the two.
 * - What a node held for a stub that was started anew is subscribed again.
 * - A runtime loads it with the first message to `<runtime URL>/sm` (runtime.js, which hands those on).
 */

import { domainOf, parse } from "../addresses.js";
import { newId } from "../ids.js";
import { answerTo } from "../messages.js";
import { isMeant, partsOf, schemeFor } from "./objects.js";
import { StoredObjects } from "./stored-objects.js";
import { StoredSubscriptions } from "./stored-subscriptions.js";
import { Refusal, answerInTime, askUntilAnswered } from "./talk.js";

const MAX_OBJECTS = 10_000;

export class SyncManager {
  #bus;
  #url;
  #domain;
  #attach;
  #reported = new Map(); // object -> {hyperty, schema, value, observers: Map, isRouted, items}
  #observed = new Map(); // object -> {hyperties: Map of hyperty -> {schema, items}, items, ready}
  #node;
  #stored;
  #kept; // what hyperties observe
  #registrations;
  #judging = new Set(); // sender and id of requests that a reporter decides about

  /**
   * @param parts {bus: MessageBus, domain, attach(hyperty, address): have a hyperty hear an address, returns
   *   an item, or undefined for who listens on the MessageBUS itself; node: NodeSubscriptions, registrations, storage}
   */
  constructor({ bus, domain, attach = () => undefined, node, registrations, storage }) {
    this.#bus = bus;
    this.#domain = domain;
    this.#attach = attach;
    this.#url = `${bus.runtimeURL}/sm`;
    this.#node = node;
    this.#registrations = registrations;
    this.#stored = new StoredObjects(bus, domain, storage);
    this.#kept = new StoredSubscriptions(bus, domain, storage);
    node.onLost = (lost) => this.#lost(lost);
  }

  /** Whether a hyperty may speak as an address: an object that it reports. */
  mayReport(hyperty, address) {
    return this.#reported.get(address)?.hyperty === hyperty;
  }

  /** A hyperty has gone: nobody reports or observes for it any more. What is not stored has ended. */
  hypertyGone(hyperty) {
    for (const [object, { hyperties }] of this.#observed)
      if (hyperties.has(hyperty)) this.#leave(hyperty, object).catch(() => {});
    for (const [object, reported] of this.#reported) {
      if (reported.hyperty !== hyperty) continue;
      if (!this.#stored.get(object)) this.#tellEnd(object, hyperty);
      this.#withdraw(object).catch(() => {});
    }
  }

  close() {
    for (const hyperty of new Set([...this.#reported.values()].map((each) => each.hyperty)))
      this.hypertyGone(hyperty);
    this.#stored.close();
    this.#kept.close();
  }

  // --- what hyperties ask -------------------------------------------------------------------------

  /** Carry out what a hyperty asks, and answer. */
  receive(message) {
    const { type, from, body } = message;
    answerInTime(this.#bus, message, () => {
      if (body?.via !== undefined)
        throw new Refusal(403, "The sync manager serves the hyperties of its own runtime.");
      const asked = body ?? {};
      if (type === "create" && asked.resume) return this.#resume(from, asked);
      if (type === "create" && asked.authorise) return this.#invite(from, asked);
      if (type === "create") return this.#create(from, asked);
      if (type === "subscribe" && asked.resume) return this.#observedBy(from, asked);
      if (type === "subscribe") return this.#subscribe(message, asked);
      if (type === "unsubscribe") return this.#unsubscribe(from, asked);
      if (type === "delete") return this.#delete(from, asked);
      if (type === "execute" && asked.method === "claim")
        return this.#node.claim(from).then(() => ({ code: 200 }));
      throw new Refusal(400, `The sync manager does not know ${type}.`);
    });
  }

  async #create(hyperty, { schema = "", scheme, value, store, identity }) {
    if (value === null || typeof value !== "object")
      throw new Refusal(400, "An object is created with a `value`.");
    if (this.#reported.size >= MAX_OBJECTS)
      throw new Refusal(503, `A runtime reports at most ${MAX_OBJECTS} objects.`);
    const object = this.#addressFor(hyperty, value.resource, schemeFor(scheme, schema));
    const { resource: _, ...kept } = value;
    await this.#report(object, {
      hyperty,
      schema,
      value: { ...kept, identity },
      observers: new Map(),
    });
    if (store) this.#stored.keep(object, { hyperty, schema, value: kept });
    return { code: 200, resource: object, childrenResources: ["children"] };
  }

  #addressFor(hyperty, wanted, scheme) {
    if (wanted === undefined) return `${scheme}://${this.#domain}/${newId()}`;
    const other = this.#reported.get(wanted);
    if (other && other.hyperty !== hyperty)
      throw new Refusal(403, `${wanted} is reported by another hyperty.`);
    if (other) throw new Refusal(409, `${wanted} is reported already: resume it.`);
    if (typeof wanted !== "string" || domainOf(wanted) !== this.#domain || !parse(wanted).path)
      throw new Refusal(400, `${wanted} is no address of ${this.#domain}.`);
    return wanted;
  }

  /** Have an object's addresses lead here, and its reporter hear them. */
  async #report(object, reported) {
    const { hyperty, value } = reported;
    const bus = this.#bus;
    reported.isRouted = value.domain_routing !== false;
    reported.items = [
      bus.addListener(`${object}/subscription`, (message) => this.#subscription(object, message)),
      this.#attach(hyperty, object),
      this.#attach(hyperty, `${object}/children/`),
      ...(reported.isRouted
        ? [bus.addPublish(`${object}/changes`)]
        : [bus.addListener(`${object}/changes`, () => {})]),
    ];
    this.#reported.set(object, reported);
    try {
      if (reported.isRouted) {
        await this.#node.claim(hyperty);
        await this.#node.ask("subscribe", object, [object, `${object}/subscription`], hyperty);
        await this.#node.ask("subscribe", object, [`${object}/children/`], hyperty);
      }
      if (value.domain_registration !== false && reported.isRouted)
        this.#registrations.add(object, { hyperty, ...value, schema: reported.schema });
    } catch (error) {
      this.#dropReported(object);
      throw new Refusal(error.code === 403 ? 403 : 500, error.message);
    }
  }

  #invite(hyperty, { resource: object, schema, authorise, value, p2p, identity }) {
    this.#mustReport(hyperty, object);
    const [invited] = [authorise].flat();
    const body = { source: hyperty, schema, value, p2p, identity };
    return new Promise((resolve) => {
      this.#bus.postMessage(
        { type: "create", from: `${object}/subscription`, to: invited, body },
        (reply) => {
          if (reply.body.code >= 200) resolve(reply.body);
        },
      );
    });
  }

  async #resume(hyperty, criteria) {
    const found = [];
    for (const [object, stored] of this.#stored.of(hyperty)) {
      if (!isMeant(criteria, object, stored)) continue;
      if (!this.#reported.has(object)) {
        const observers = new Map(stored.observers ?? []);
        await this.#report(object, {
          hyperty,
          schema: stored.schema,
          value: stored.value,
          observers,
        });
        this.#stored.beginAnew(object);
      }
      found.push(object);
    }
    if (!found.length) throw new Refusal(404, `${hyperty} has reported no such object.`);
    const value = found.map((object) => {
      const { schema, value: whole } = this.#stored.get(object);
      return {
        resource: object,
        schema,
        value: whole,
        observers: [...this.#reported.get(object).observers],
      };
    });
    return { code: 200, value };
  }

  #observedBy(hyperty, criteria) {
    const value = this.#kept
      .of(hyperty)
      .filter(([object, subscription]) => isMeant(criteria, object, subscription))
      .map(([resource, { schema }]) => ({ resource, schema }));
    if (!value.length) throw new Refusal(404, `${hyperty} has observed no such object.`);
    return { code: 200, value };
  }

  async #subscribe(
    { from: hyperty, id },
    { resource: object, schema = "", identity, domain_subscription: isAtNode = true },
  ) {
    if (typeof object !== "string" || !domainOf(object))
      throw new Refusal(400, `${object} is no address of an object.`);
    const isAgain = this.#observed.get(object)?.hyperties.has(hyperty);
    try {
      await this.#observe(hyperty, object, schema, isAtNode);
      const accepted = { code: 100, childrenResources: ["children"], schema, resource: object };
      this.#bus.postMessage(answerTo({ id, from: hyperty, to: this.#url }, accepted));
      const { code, value } = await this.#atReporter("subscribe", object, {
        subscriber: hyperty,
        source: hyperty,
        identity,
      });
      const told = schema || value?.schema || "";
      this.#kept.keep(hyperty, object, { schema: told, name: value?.name });
      return { code, resource: object, schema: told, value };
    } catch (error) {
      if (!isAgain) await this.#unhear(hyperty, object); // else it goes on hearing, and asks once more
      throw error;
    }
  }

  async #unsubscribe(hyperty, { resource: object, keep }) {
    if (!keep) this.#kept.forget(hyperty, object);
    if (!this.#observed.get(object)?.hyperties.has(hyperty)) return { code: 200 };
    await this.#leave(hyperty, object);
    return { code: 200 };
  }

  async #delete(hyperty, { resource: object }) {
    this.#mustReport(hyperty, object);
    this.#tellEnd(object, hyperty);
    this.#stored.forget(object);
    await this.#withdraw(object);
    return { code: 200 };
  }

  #mustReport(hyperty, object) {
    if (this.#reported.get(object)?.hyperty !== hyperty)
      throw new Refusal(404, `${hyperty} does not report ${object}.`);
  }

  // --- objects that are reported here -------------------------------------------------------------

  /** Somebody wants to subscribe, or does not any more. */
  #subscription(object, message) {
    const { id, type, from, body } = message;
    const key = `${from}\n${id}`;
    if (this.#judging.has(key)) return; // asked again, and not decided yet: that answer will do
    const { hyperty, observers } = this.#reported.get(object);
    if (type !== "subscribe" && type !== "unsubscribe") {
      if (type !== "response")
        answerInTime(this.#bus, message, () =>
          Promise.reject(new Refusal(400, "Here one subscribes or unsubscribes.")),
        );
      return;
    }
    const observer = body?.subscriber ?? body?.source ?? from;
    answerInTime(this.#bus, message, () => {
      if (typeof observer !== "string" || domainOf(observer) !== domainOf(from))
        throw new Refusal(403, `${from} cannot subscribe for ${observer}.`);
      if (type === "unsubscribe" && observers.get(observer) !== from) return { code: 200 };
      const asked = {
        type,
        from: observer,
        to: object,
        identity: body?.identity,
        isAsserted: body?.assertedIdentity === true,
        source: from,
      };
      this.#judging.add(key);
      return new Promise((resolve) => {
        this.#bus.postMessage(
          { type: "forward", from: object, to: hyperty, body: asked },
          (reply) => {
            const { code } = reply.body;
            if (code < 200) return;
            this.#judging.delete(key);
            if (code < 300 && type === "subscribe") observers.set(observer, from);
            else if (code < 300) observers.delete(observer);
            this.#stored.observed(object, observers);
            resolve(reply.body);
          },
        );
      });
    });
  }

  #tellEnd(object, hyperty) {
    this.#bus.postMessage(
      {
        type: "delete",
        from: `${object}/subscription`,
        to: `${object}/changes`,
        body: { source: hyperty },
      },
      () => {},
    );
  }

  async #withdraw(object) {
    const { hyperty, isRouted } = this.#reported.get(object);
    this.#dropReported(object);
    this.#registrations.remove(object);
    if (!isRouted) return;
    const still = this.#bus.addPublish(`${object}/changes`); // that it ends is on its way
    await this.#node
      .ask(
        "unsubscribe",
        object,
        [object, `${object}/subscription`, `${object}/children/`],
        hyperty,
      )
      .finally(() => still.remove());
  }

  #dropReported(object) {
    for (const item of this.#reported.get(object).items) item?.remove();
    this.#reported.delete(object);
  }

  // --- objects that are observed here -------------------------------------------------------------

  async #observe(hyperty, object, schema, isAtNode) {
    let observed = this.#observed.get(object);
    if (!observed) {
      if (this.#observed.size >= MAX_OBJECTS)
        throw new Refusal(503, `A runtime observes at most ${MAX_OBJECTS} objects.`);
      const children = `${object}/children/`;
      const items = [this.#bus.addListener(children, () => {}), this.#bus.addPublish(children)];
      observed = {
        hyperties: new Map(),
        items,
        ready: null,
        isAtNode: isAtNode && !this.#reported.has(object),
      };
      this.#observed.set(object, observed);
    }
    const isAgain = observed.hyperties.has(hyperty);
    if (!isAgain) {
      const items = [
        this.#attach(hyperty, `${object}/changes`),
        this.#attach(hyperty, `${object}/children/`),
      ];
      observed.hyperties.set(hyperty, { schema, items });
    }
    if (observed.isAtNode) {
      await this.#node.claim(hyperty);
      if (isAgain) observed.ready = null; // what the node had for it may be gone
      const ready = (observed.ready ??= this.#node.ask(
        "subscribe",
        object,
        partsOf(object),
        hyperty,
      ));
      await ready.catch((error) => {
        if (observed.ready === ready) observed.ready = null;
        throw error;
      });
    }
  }

  async #leave(hyperty, object) {
    await Promise.all([
      this.#unhear(hyperty, object),
      this.#atReporter("unsubscribe", object, { source: hyperty }).catch(() => {}), // he may be gone
    ]);
  }

  /** The listeners of one hyperty go; with the last one the node's subscription. */
  async #unhear(hyperty, object) {
    const observed = this.#observed.get(object);
    const own = observed?.hyperties.get(hyperty);
    if (!own) return;
    for (const item of own.items) item?.remove();
    observed.hyperties.delete(hyperty);
    if (observed.hyperties.size) return;
    this.#observed.delete(object);
    for (const item of observed.items) item.remove();
    if (observed.isAtNode)
      await this.#node.ask("unsubscribe", object, partsOf(object), hyperty).catch(() => {});
  }

  #atReporter(type, object, body) {
    return new Promise((resolve, reject) => {
      askUntilAnswered(
        this.#bus,
        { type, from: this.#url, to: `${object}/subscription`, body },
        ({ body: told }) => {
          if (told.code >= 200 && told.code < 300) resolve(told);
          else if (told.code >= 300)
            reject(
              new Refusal(
                told.code,
                told.desc ?? told.description ?? `The reporter of ${object} answered ${told.code}.`,
              ),
            );
        },
      );
    });
  }

  // --- nodes --------------------------------------------------------------------------------------

  /** The node of a domain has lost what it held: say all again. */
  #lost(domain) {
    if (domain === this.#domain) {
      for (const [object, { hyperty, isRouted }] of this.#reported)
        if (isRouted)
          this.#node.announce(
            object,
            [object, `${object}/subscription`, `${object}/children/`],
            hyperty,
          );
    }
    for (const [object, { hyperties, isAtNode }] of this.#observed) {
      if (isAtNode && domainOf(object) === domain)
        this.#node.announce(object, partsOf(object), hyperties.keys().next().value);
    }
  }
}
