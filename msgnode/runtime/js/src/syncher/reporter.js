/**
 * The reporter's side of a data object: the one copy that may be changed.
 *
 * Rules
 * - Each change has the next number, and goes to `<object>/changes` at once.
 * - Who asks to subscribe is judged by the application (`onSubscription`), or admitted; who was invited, or observes
 *   already, is not asked about again, unless another runtime asks in his name. Only observers may read the object and
 *   add children.
 * - Children come to `<object>/children/`. The reporter takes or refuses each, and tells all observers of
 *   it with a number like any change's, so that they miss none and believe nobody else. What an observer sends
 *   again, because the answer was lost, is done once.
 * - After a connection came back the last change is repeated: who missed it takes it, others drop it.
 */

import { newId } from "../ids.js";
import { AnswerError } from "../bus.js";
import { MAX_OBJECT, sizeOf } from "./changes.js";
import { Children, Done } from "./children.js";
import { observe } from "./observed.js";
import { Listeners } from "./objects.js";
import { Refusal, answer, answerInTime } from "./talk.js";

const MAX_OBSERVERS = 10_000;

export class DataObjectReporter {
  url;
  name;
  schema;
  /** The hyperty that reports it. */
  reporter;
  /** The object: change it as any other. */
  data;
  /** Of the last change. */
  version = 0;
  #raw;
  #bus;
  #me;
  #head;
  #size;
  #observers = new Map(); // hyperty -> who said so for it
  #invited = new Set();
  #children = new Children();
  #done = new Done();
  #childListeners;
  #lastModified;
  #last = null;
  #judge = null;
  #readJudge = null;
  #end;
  #sink = {
    isEnded: false,
    admit: (part) => this.#admit(part),
    changed: (change) => this.#publish({ version: this.version + 1, ...change }),
  };

  /**
   * @param syncher {url, bus, post(body, authorise), end(reporter)}
   * @param stored {resource, schema, value: {name, data, version?, childrenObjects?, …}, observers?}
   */
  constructor({ url: me, bus, end }, { resource, schema, value, observers = [] }) {
    const { data, version = 0, childrenObjects = {}, lastModified, responses: _, ...head } = value;
    this.url = resource;
    this.reporter = me;
    this.schema = schema;
    this.name = head.name;
    this.version = version;
    this.#bus = bus;
    this.#me = me;
    this.#end = end;
    this.#raw = data;
    this.#size = sizeOf(data);
    this.#lastModified = lastModified ?? new Date().toISOString();
    this.#head = { ...head, url: resource, reporter: me, confirmsChildren: true };
    this.#children.replace(childrenObjects);
    this.#childListeners = new Listeners(bus);
    for (const [hyperty, by] of observers) this.#observers.set(hyperty, by);
    this.data = observe(data, this.#sink);
  }

  /** The hyperties that observe it. */
  get observers() {
    return [...this.#observers.keys()];
  }

  /** Its children, {id, source, value}, in the order in which they came. */
  get children() {
    return this.#children.list();
  }

  /**
   * Judge who subscribes: `judge({hyperty, identity, isAsserted})` returns false or throws to refuse, now or
   * later. `isAsserted`: the node that brought it vouches for the identity.
   */
  onSubscription(judge) {
    this.#judge = judge;
  }

  /** Judge who reads without observing: `judge({from})` returns true to let him, now or later. */
  onRead(judge) {
    this.#readJudge = judge;
  }

  /** Hear of children: {type: "create" | "update" | "delete", id, source, value}. */
  onChild(listener) {
    return this.#childListeners.add(listener);
  }

  /** Add a child of one's own. Resolves with its id. */
  async addChild(value, id = `${this.#me}#${newId()}`) {
    this.#takeChild("create", { resource: id, value }, this.#me);
    return id;
  }

  async updateChild(id, value) {
    this.#takeChild("update", { resource: id, value }, this.#me);
  }

  async removeChild(id) {
    this.#takeChild("delete", { resource: id }, this.#me);
  }

  /**
   * Invite hyperties. Resolves with a map of address to the code of its answer; below 300 is a yes.
   */
  async invite(addresses) {
    const sm = this.#end.manager;
    const asked = [addresses].flat().map(async (address) => {
      this.#invited.add(address);
      const body = {
        resume: false,
        resource: this.url,
        schema: this.schema,
        value: this.#metadata(),
        authorise: [address],
      };
      try {
        const { code } = await this.#bus.request({ type: "create", from: this.#me, to: sm, body });
        return [address, code];
      } catch (error) {
        this.#invited.delete(address);
        if (error instanceof AnswerError) return [address, error.code];
        throw error;
      }
    });
    return new Map(await Promise.all(asked));
  }

  /** End the object: its observers are told, its address is free. */
  async delete() {
    this.#sink.isEnded = true;
    await this.#end.object(this);
  }

  // --- for the syncher ----------------------------------------------------------------------------

  /** What is sent to the object itself. */
  received(message) {
    if (message.type === "read") this.#read(message);
    else if (message.type !== "response")
      this.#refuse(message, 400, "A data object can be read; other messages go to its parts.");
  }

  /** What is sent to its children. */
  receivedChild(message) {
    const { type, from, body } = message;
    if (type !== "create" && type !== "update" && type !== "delete") return;
    answerInTime(this.#bus, message, () => {
      if (!this.#observers.has(from))
        throw new Refusal(403, `${from} does not observe this object.`);
      if (!this.#done.has(from, body?.once)) this.#takeChild(type, body ?? {}, from);
      this.#done.add(from, body?.once);
      return { code: 200, source: this.#me };
    });
  }

  /** The runtime asks for somebody: subscribe or unsubscribe. */
  forwarded(message) {
    const { type, from, identity, isAsserted, source = from } = message.body;
    if (type === "unsubscribe") {
      this.#observers.delete(from);
      answer(this.#bus, message, { code: 200 });
      return;
    }
    answerInTime(this.#bus, message, () => {
      const isObserver = this.#observers.has(from);
      const isKnown = isObserver ? this.#observers.get(from) === source : this.#invited.has(from);
      if (!isKnown && !isObserver && this.#observers.size >= MAX_OBSERVERS)
        throw new Refusal(503, `A data object has at most ${MAX_OBSERVERS} observers.`);
      const admitted =
        !isKnown && this.#judge ? this.#judge({ hyperty: from, identity, isAsserted }) : true;
      const admit = (isAdmitted) => {
        if (isAdmitted === false)
          throw new Refusal(403, "The reporter does not admit this observer.");
        if (this.#sink.isEnded) throw new Refusal(404, "The object has ended.");
        this.#observers.set(from, source);
        const { head, parts } = this.#value();
        if (parts.length) head.responses = parts.length + 1; // the observer reads them
        return { code: 200, schema: this.schema, value: head };
      };
      return typeof admitted?.then === "function" ? admitted.then(admit) : admit(admitted);
    });
  }

  /** It is reported again: observers that know later changes of before read it. */
  announce() {
    const { version, lastModified, incarnation } = this.#metadata();
    this.#last = {
      source: this.#me,
      version,
      lastModified,
      ...(incarnation ? { incarnation } : {}),
    };
    this.#post(this.#last);
  }

  /** Take no changes any more: nobody would hear of them. */
  ended() {
    this.#sink.isEnded = true;
  }

  /** A connection came back, or something was lost on it. */
  repeat() {
    if (this.#last && !this.#sink.isEnded) this.#post(this.#last);
  }

  // --- changes --------------------------------------------------------------------------------------

  #admit(part) {
    const size = sizeOf(part) + 100;
    if (this.#size + size > MAX_OBJECT) this.#size = sizeOf(this.#raw);
    if (this.#size + size > MAX_OBJECT)
      throw new RangeError(`A data object has at most ${MAX_OBJECT} bytes.`);
    this.#size += size;
  }

  #publish(change) {
    this.version += 1;
    this.#lastModified = new Date().toISOString();
    const { incarnation } = this.#head; // none of objects stored before there was one
    this.#last = {
      source: this.#me,
      lastModified: this.#lastModified,
      ...(incarnation ? { incarnation } : {}),
      ...change,
    };
    this.#post(this.#last);
  }

  #post(body) {
    this.#bus.postMessage({ type: "update", from: this.url, to: `${this.url}/changes`, body });
  }

  #takeChild(type, { resource: id, value }, from) {
    if (this.#sink.isEnded) throw new Refusal(404, "The object has ended.");
    const known = this.#children.get(id);
    if (known && known.source !== from && from !== this.#me)
      throw new Refusal(403, "A child is its maker's, or its reporter's.");
    if (!known && type === "update") throw new Refusal(404, "There is no such child.");
    if (type === "delete") {
      if (!this.#children.delete(id)) return; // said twice
      this.#tellChild({ type, id, source: known.source, value: known.value });
      return;
    }
    let child;
    try {
      if (sizeOf(value) > MAX_OBJECT)
        throw new RangeError(`A child has at most ${MAX_OBJECT} bytes.`);
      child = this.#children.put(id, known?.source ?? from, value ?? null);
    } catch (error) {
      throw new Refusal(error instanceof RangeError ? 413 : 400, error.message);
    }
    if (known && JSON.stringify(known.value) === JSON.stringify(child.value)) return; // said twice
    this.#tellChild({ type: known ? "update" : "create", ...child });
  }

  #tellChild(event) {
    const { type, id, source, value } = event;
    const child = type === "delete" ? { resource: id } : { resource: id, value };
    this.#publish({ ...child, childVersion: this.version + 1, childSource: source });
    this.#childListeners.tell(event);
  }

  // --- reading --------------------------------------------------------------------------------------

  #metadata() {
    return { ...this.#head, version: this.version, lastModified: this.#lastModified };
  }

  /** The whole, {head, parts}: without parts all of it is in the head. */
  #value() {
    const parts = this.#children.parts();
    const head = { ...this.#metadata(), data: this.#raw };
    if (parts.length > 1) return { head, parts };
    return { head: { ...head, childrenObjects: parts[0] ?? {} }, parts: [] };
  }

  #read(message) {
    const isObserver =
      this.#observers.has(message.from) || [...this.#observers.values()].includes(message.from);
    if (isObserver) {
      answer(this.#bus, message, this.#toldWhole(message));
      return;
    }
    answerInTime(this.#bus, message, () => {
      const tell = (isIn) => {
        if (isIn !== true) throw new Refusal(403, `${message.from} does not observe this object.`);
        return this.#toldWhole(message);
      };
      const judged = this.#readJudge?.({ from: message.from });
      return typeof judged?.then === "function" ? judged.then(tell) : tell(judged);
    });
  }

  /** The last part of the answer, with which nobody waits any longer; the others are sent. */
  #toldWhole(message) {
    const { head, parts } = this.#value();
    if (!parts.length) return { code: 200, value: head };
    const last = parts.pop();
    answer(this.#bus, message, { code: 100, value: { ...head, responses: parts.length + 2 } });
    for (const childrenObjects of parts)
      answer(this.#bus, message, { code: 100, value: { childrenObjects } });
    return { code: 200, value: { childrenObjects: last } };
  }

  #refuse(message, code, text) {
    answerInTime(this.#bus, message, () => {
      throw new Refusal(code, text);
    });
  }
}
