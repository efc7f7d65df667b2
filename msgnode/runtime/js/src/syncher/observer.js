/**
 * An observer's copy of a data object. It is for reading; its children may be added to.
 *
 * Rules
 * - What was missed is noticed and read again (follower.js), also after a connection came back, and after
 *   a stub said that something was lost.
 * - Only what the object itself sends is believed, and only by way of its own domain or of home.
 * - A reporter that is away leaves the copy as it is: `status` is "disconnected" until he can be read.
 */

import { domainOf } from "../addresses.js";
import { newId } from "../ids.js";
import { MAX_OBJECT, applyChange, plain, sizeOf } from "./changes.js";
import { Children } from "./children.js";
import { Follower } from "./follower.js";
import { observe } from "./observed.js";
import { Listeners, requestInParts } from "./objects.js";
import { Refusal } from "./talk.js";

const CHILD_RETRIES = 3;

export class DataObjectObserver {
  url;
  schema;
  name = "";
  reporter = "";
  /** The object as of its last change that is known. */
  data;
  /** "live", "disconnected" or "ended". */
  status = "live";
  #raw = {};
  #bus;
  #me;
  #home;
  #end;
  #size = 0;
  #children = new Children();
  #isConfirming = false;
  #isRefused = false;
  #asking = new Map(); // child -> when what was asked about it before is done
  #follower;
  #changes;
  #childEvents;
  #statuses;

  /** @param syncher {url, bus, home, end: {object(observer), value(url)}} */
  constructor({ url: me, bus, home, end }, url) {
    this.url = url;
    this.#bus = bus;
    this.#me = me;
    this.#home = home;
    this.#end = end;
    [this.#changes, this.#childEvents, this.#statuses] = [
      new Listeners(bus),
      new Listeners(bus),
      new Listeners(bus),
    ];
    const count = (reason) => bus.report(reason, { isQuiet: true });
    const parts = {
      count,
      apply: (change) => this.#apply(change),
      adopt: (value) => this.#adopt(value),
      read: () => this.#read(),
      failed: () => {
        count("data.unread");
        this.#enter("disconnected");
      },
    };
    this.#follower = new Follower(parts, bus.clock);
  }

  get version() {
    return this.#follower.version;
  }

  /** Its children, {id, source, value}, in the order in which they came. */
  get children() {
    return this.#children.list();
  }

  /** Hear of changes: {attribute, value?, attributeType?, operation?}; with `attribute` "" all was read anew. */
  onChange(listener) {
    return this.#changes.add(listener);
  }

  /** Hear of children: {type: "create" | "update" | "delete", id, source, value}. */
  onChild(listener) {
    return this.#childEvents.add(listener);
  }

  /** Hear of `status`. */
  onStatus(listener) {
    return this.#statuses.add(listener);
  }

  /** Add a child. Resolves with its id once the reporter has taken it, rejects with an error with a `code`. */
  async addChild(value, id = `${this.#me}#${newId()}`) {
    await this.#say("create", { resource: id, value: plain(value, false) });
    return id;
  }

  async updateChild(id, value) {
    await this.#say("update", { resource: id, value: plain(value, false) });
  }

  async removeChild(id) {
    await this.#say("delete", { resource: id });
  }

  /** Observe it no longer. */
  async unsubscribe() {
    if (this.status === "ended") return;
    this.ended();
    await this.#end.object(this);
  }

  // --- for the syncher ----------------------------------------------------------------------------

  /** What came to `<object>/changes`. */
  received({ type, from, body }) {
    if (this.status === "ended") return;
    const isReporters = from === this.url || from.startsWith(`${this.url}/`);
    const via = body?.via;
    if (
      !isReporters ||
      (via !== undefined && ![domainOf(this.url), this.#home].includes(domainOf(via)))
    ) {
      this.#bus.report("data.forged", { isQuiet: true });
    } else if (type === "delete") this.ended();
    else if (type === "update" && body !== null && typeof body === "object")
      this.#follower.take(body);
  }

  /** What came to `<object>/children/`: of a reporter that confirms children it says nothing. */
  receivedChild({ type, from, body }) {
    if (this.#isConfirming || this.status === "ended" || typeof body?.resource !== "string") return;
    const known = this.#children.get(body.resource);
    if (known && known.source !== from) return;
    this.#takeChild(
      { resource: body.resource, value: type === "delete" ? undefined : body.value },
      from,
    );
  }

  /** The object's value, of however many parts it consists. */
  async readWhole() {
    const { value } = await requestInParts(this.#bus, {
      type: "read",
      from: this.#me,
      to: this.url,
    });
    return value ?? {};
  }

  /** The subscription was granted. @throws Refusal if the value is none */
  start(value, schema) {
    this.schema = schema ?? value?.schema ?? "";
    try {
      this.#follower.start(value ?? {});
    } catch (error) {
      throw error instanceof Refusal
        ? error
        : new Refusal(
            502,
            `What the reporter of ${this.url} says is no data object: ${error.message}`,
          );
    }
  }

  /** A connection came back, or something was lost on it. */
  check() {
    this.#follower.check();
  }

  disconnected() {
    this.#enter("disconnected");
  }

  ended() {
    this.#follower.stop();
    this.#enter("ended");
  }

  // --- what comes ---------------------------------------------------------------------------------

  #apply(change) {
    if (change.childVersion !== undefined || typeof change.resource === "string") {
      this.#takeChild(change, change.childSource ?? this.reporter);
      return;
    }
    this.#size += sizeOf(change.value);
    if (this.#size > MAX_OBJECT) {
      this.#size = sizeOf(this.#raw) + sizeOf(change.value);
      if (this.#size > 2 * MAX_OBJECT)
        throw new RangeError("The object is larger than one may be.");
    }
    applyChange(this.#raw, change);
    const { attribute, attributeType, operation } = change;
    const event = {
      attribute,
      ...("value" in change ? { value: change.value } : {}),
      ...(operation ? { attributeType, operation } : {}),
    };
    this.#changes.tell(event);
  }

  #takeChild({ resource: id, value }, source) {
    const known = this.#children.get(id);
    if (value === undefined) {
      if (this.#children.delete(id)) this.#childEvents.tell({ ...known, type: "delete" });
      return;
    }
    const child = this.#children.put(id, known?.source ?? source, value);
    this.#childEvents.tell({ type: known ? "update" : "create", ...child });
  }

  #adopt(value) {
    const { data, name, reporter, childrenObjects, responses, confirmsChildren } = value;
    if (data === null || typeof data !== "object" || Array.isArray(data))
      throw new Refusal(502, "The reporter's object has no data.");
    const isFirst = this.data === undefined;
    this.#raw = plain(data, false);
    this.#size = sizeOf(this.#raw);
    this.data = observe(this.#raw, null);
    this.name = String(name ?? "");
    this.reporter = String(reporter ?? "");
    this.#isConfirming = confirmsChildren === true;
    const isWhole = !(responses > 1) || childrenObjects;
    const known =
      childrenObjects !== null && typeof childrenObjects === "object" ? childrenObjects : {};
    const changes = isWhole ? this.#children.replace(known) : [];
    this.#enter("live");
    if (isFirst) return;
    this.#changes.tell({ attribute: "", value: this.data });
    for (const change of changes) this.#childEvents.tell(change);
  }

  /**
   * The object's value, from its reporter. One that began anew knows no observers, and a node that sent its guest away
   * passes nothing on: who is refused asks to be an observer again, until he is one.
   */
  async #read() {
    if (!this.#isRefused) {
      try {
        return await this.readWhole();
      } catch (error) {
        if (error.code !== 403) throw error;
        this.#isRefused = true;
      }
    }
    const value = await this.#end.value(this.url);
    this.#isRefused = false;
    return value?.responses > 1 ? this.readWhole() : (value ?? {});
  }

  async #say(type, body) {
    if (this.status === "ended") throw new Refusal(404, "The object has ended.");
    const message = { type, from: this.#me, to: `${this.url}/children/`, body };
    if (!this.#isConfirming) {
      this.#bus.postMessage(message, () => {});
      this.#takeChild(body, this.#me);
      return;
    }
    const { resource } = body;
    const asked = (this.#asking.get(resource) ?? Promise.resolve()).then(() =>
      this.#ask({ ...message, body: { ...body, once: newId() } }),
    );
    const done = asked
      .catch(() => {})
      .then(() => this.#asking.get(resource) === done && this.#asking.delete(resource));
    this.#asking.set(resource, done);
    await asked;
  }

  /** One request about a child at a time: one that is sent again would undo a later one. */
  async #ask(message) {
    if (this.status === "ended") throw new Refusal(404, "The object has ended.");
    const { body: told } = await new Promise((resolve) =>
      this.#bus.postMessageWithRetries(
        message,
        CHILD_RETRIES,
        (reply) => reply.body.code >= 200 && resolve(reply),
      ),
    );
    if (told.code >= 300)
      throw new Refusal(told.code, told.desc ?? told.description ?? "The child was refused.");
  }

  #enter(status) {
    if (this.status === status || this.status === "ended") return;
    this.status = status;
    this.#statuses.tell(status);
  }
}
