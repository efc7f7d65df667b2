/**
 * Setting a connection up: the messages of both sides, through the node.
 *
 *     requester (R, object C)                   handler (H, object D)
 *     create C/subscription -> H: invited   ──►
 *                                           ◄── execute H -> handler of the requester: confirm
 *                                           ◄── subscribe to C/subscription: has the offer
 *                                           ◄── create D/subscription -> R: announced
 *     execute R -> H: confirm               ──►
 *     subscribe to D/subscription: answer   ──►
 *
 * With a runtime of the field nobody is asked to confirm, and descriptions come late (RemoteObject).
 *
 * It follows docs/reference/p2p.md, rows 12-15.
 */

import { domainOf, isBelow, isP2P, parse, resourceOf } from "../addresses.js";
import { AnswerError } from "../bus.js";
import { limited } from "../clock.js";
import { newId } from "../ids.js";
import { answerTo, errorBody } from "../messages.js";
import { MAX_CANDIDATES, MAX_SDP, PROTOCOL } from "./rtc.js";

const MAX_ADDRESS = 600; // characters
const MAX_CANDIDATE = 1_024; // characters
const SKEW = 30; // s that the clocks of two runtimes may differ

/** A step of the set-up was refused; `code` as in the answer. */
export class SetUpError extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

/** One side's connection object, from its announcement to the end of the set-up. */
export class ConnectionObject {
  #signalling;
  #stub;
  #to;
  #runtime;
  #described;
  #listening = null;
  #isClaimed = false;
  #isFree = false;
  #created = new Date().toISOString();
  #read;
  wasRead = false;
  /** Called before the other side reads it; what it throws, a SetUpError, is the answer instead. */
  onRead = () => {};
  /** Resolves when the other side has read it. */
  read = new Promise((resolve) => {
    this.#read = resolve;
  });

  /** @param made {url, epoch, stub: whose it is, to: the stub that alone may read it, runtime: its, described} */
  constructor(signalling, { url, epoch, stub, to, runtime, described }) {
    [this.url, this.epoch] = [url, epoch];
    [this.#signalling, this.#stub, this.#to, this.#runtime, this.#described] = [
      signalling,
      stub,
      to,
      runtime,
      described,
    ];
  }

  get #named() {
    return [this.url, `${this.url}/subscription`];
  }

  /** What is said of the object besides its data; an observer of the field takes none without all of it. */
  get #metadata() {
    return {
      name: "P2PConnection",
      schema: `hyperty-catalogue://catalogue.${parse(this.url).domain}/.well-known/dataschema/Connection`,
      reporter: this.#stub,
      runtime: this.#signalling.bus.runtimeURL,
      created: this.#created,
      resources: ["data"],
    };
  }

  /** Claim the address, and tell the other side; `expires` is in seconds since 1970. Rejects with a SetUpError. */
  async offer(expires) {
    const signalling = this.#signalling;
    this.#isClaimed = true;
    await signalling.claim(this.#named);
    if (this.#isFree) return; // the set-up has ended meanwhile
    this.#listening = signalling.bus.addListener(`${this.url}/subscription`, (message) =>
      this.#asked(message),
    );
    const value = {
      ...this.#metadata,
      protocol: PROTOCOL,
      epoch: this.epoch,
      instance: signalling.instance,
      p2pHandler: signalling.handler,
      expires: Math.trunc(expires),
    };
    const { schema } = value;
    await signalling.ask("create", `${this.url}/subscription`, this.#to, {
      p2p: false,
      source: this.#stub,
      schema,
      value,
    });
  }

  /** Give the address back. */
  free() {
    this.#isFree = true;
    this.#listening?.remove();
    if (this.#isClaimed) this.#signalling.unclaim(this.#named);
  }

  #asked(message) {
    const signalling = this.#signalling;
    if (message.type !== "subscribe") return;
    if (message.body?.subscriber !== this.#to || !isBelow(message.from, this.#runtime)) {
      signalling.answer(message, 403, `${this.url} is for ${this.#to} alone.`);
      return;
    }
    const data = {
      name: "P2PConnection",
      owner: this.#stub,
      runtime: signalling.bus.runtimeURL,
      runtimeURL: signalling.bus.runtimeURL,
      protocol: PROTOCOL,
      epoch: this.epoch,
      connectionDescription: this.#described,
      iceCandidates: [],
    };
    try {
      if (!this.wasRead) this.onRead();
    } catch (error) {
      if (!(error instanceof SetUpError)) throw error;
      signalling.answer(message, error.code, error.message);
      return;
    }
    this.wasRead = true;
    this.#read();
    signalling.answer(message, 200, "", {
      ...this.#metadata,
      url: this.url,
      version: 1,
      data,
    });
  }
}

/** What both sides say, and how. */
export class Signalling {
  instance = newId().slice(0, 16);
  #time;

  constructor(bus, handler, time) {
    this.bus = bus;
    this.handler = handler;
    this.#time = time;
  }

  /** A URL for a connection object, in the domain of the stub's address. */
  newObject(stub) {
    return `connection://${parse(stub).domain}/${newId()}`;
  }

  /** Ask; resolves with the body of a good answer, rejects with a SetUpError. */
  async ask(type, from, to, body) {
    const late = () => new SetUpError(408, `${to} does not answer.`);
    try {
      return await limited(
        this.bus.request({ type, from, to, body }),
        this.#time,
        late,
        this.bus.clock,
      );
    } catch (error) {
      throw error instanceof AnswerError ? new SetUpError(error.code, error.message) : error;
    }
  }

  /**
   * Have addresses delivered here, by the node of the first one's domain. No `source` says for whom: one below the
   * runtime's URL would mean the newest session of that URL, which may be another tab's.
   */
  async claim(named) {
    await this.ask("subscribe", `${this.bus.runtimeURL}/sm`, nodeOf(named[0]), {
      resources: named,
    });
  }

  /** Have them delivered here no longer. */
  unclaim(named) {
    this.bus.postMessage(
      {
        type: "unsubscribe",
        from: `${this.bus.runtimeURL}/sm`,
        to: nodeOf(named[0]),
        body: { resources: named },
      },
      () => {},
    );
  }

  /** Ask the runtime above `to` whether it made this object. */
  async confirm(own, to, epoch, url) {
    await this.ask("execute", own, to, { method: "confirm", params: [{ epoch, resource: url }] });
  }

  /** What the other side's object describes. */
  async described(url, own) {
    return (await this.dataOf(url, own))?.connectionDescription;
  }

  /** What the other side's object says. */
  async dataOf(url, own) {
    const { value } = await this.ask(
      "subscribe",
      `${this.bus.runtimeURL}/sm`,
      `${url}/subscription`,
      { subscriber: own },
    );
    return value?.data;
  }

  /** Answer a message of the signalling. */
  answer(message, code, text = "", value = undefined) {
    const body = code < 300 ? { code } : errorBody(code, text);
    if (value !== undefined) body.value = value;
    this.bus.postMessage(answerTo(message, body));
  }
}

/** What an invitation or an announcement says: {url, stub, runtime, epoch, handler, instance, isField}. Throws SetUpError. */
export function invitedBy({ from, body }) {
  const value = typeof body?.value === "object" && body.value !== null ? body.value : {};
  const url = resourceOf(from);
  const isField = value.protocol !== PROTOCOL;
  const named = [
    body?.source,
    value.runtime || value.runtimeURL,
    isField ? newId().slice(0, 16) : value.epoch,
    value.p2pHandler,
    value.instance,
  ];
  const [stub, runtime, epoch, handler, instance] = named.map(textOf);
  if (!isP2P(stub)) throw new SetUpError(400, "The body lacks `source`: a P2P stub.");
  if (!runtime || !epoch)
    throw new SetUpError(501, "An invitation names its runtime and its epoch.");
  if (from !== `${url}/subscription`)
    throw new SetUpError(400, "An invitation comes from the object's /subscription.");
  if (typeof value.expires === "number" && value.expires + SKEW < Date.now() / 1000)
    throw new SetUpError(410, "The invitation has expired.");
  return { url, stub, runtime, epoch, handler, instance, isField };
}

/** Method and parameter of an `execute`. Throws SetUpError. */
export function askedOf({ body }) {
  const said = Array.isArray(body?.params) ? body.params[0] : undefined;
  if (typeof said !== "object" || said === null)
    throw new SetUpError(400, "The body lacks `params`: a list of one object.");
  return { method: body.method, said };
}

/** A count as the other side wrote it, 0 for what is none. */
export function countOf(value) {
  return Number.isSafeInteger(value) && value >= 0 ? value : 0;
}

function nodeOf(address) {
  return `domain://msg-node.${domainOf(address)}/sm`;
}

function textOf(value) {
  return typeof value === "string" && value.length <= MAX_ADDRESS ? value : "";
}

/** What is known of the other side's connection. Pure. */
export class Described {
  candidates = [];
  #kind;
  #sdp = "";
  #type = "";

  /** @param kind "offer" or "answer" */
  constructor(kind) {
    this.#kind = kind;
  }

  /** The description, once it is whole; else null. */
  get description() {
    return this.#type === this.#kind && this.#sdp ? { sdp: this.#sdp, type: this.#type } : null;
  }

  /** Take what the object says. */
  read(data) {
    this.#describe(data?.connectionDescription);
    this.#add(data?.iceCandidates);
  }

  /** Take a change; the candidates that are new with it. */
  change({ attribute, value }) {
    if (typeof attribute !== "string") return [];
    const [name, part] = attribute.split(".");
    if (name === "connectionDescription") this.#describe(part ? { [part]: value } : value);
    return name === "iceCandidates" ? this.#add(value) : [];
  }

  #describe(value) {
    if (typeof value?.sdp === "string" && value.sdp.length <= MAX_SDP) this.#sdp = value.sdp;
    if (["offer", "answer"].includes(value?.type)) this.#type = value.type;
  }

  #add(value) {
    const found = [];
    for (const each of Array.isArray(value) ? value : [value]) {
      const text = each?.candidate;
      if (typeof text !== "string" || !text || text.length > MAX_CANDIDATE) continue;
      const { sdpMid = null, sdpMLineIndex = null } = each;
      const isKnown = this.candidates.some(
        (one) =>
          one.candidate === text && one.sdpMid === sdpMid && one.sdpMLineIndex === sdpMLineIndex,
      );
      if (isKnown || this.candidates.length >= MAX_CANDIDATES) continue;
      const candidate = { candidate: text, sdpMid, sdpMLineIndex };
      this.candidates.push(candidate);
      found.push(candidate);
    }
    return found;
  }
}

/** The object, from the first look at it to the end of the set-up. */
export class RemoteObject {
  #signalling;
  #url;
  #own;
  #described;
  #listening = null;
  #isWhole = () => {};
  #onCandidate = () => {};

  /** @param said {url: of the object, own: our stub, which observes it, kind: "offer" or "answer"} */
  constructor(signalling, { url, own, kind }) {
    [this.#signalling, this.#url, this.#own] = [signalling, url, own];
    this.#described = new Described(kind);
  }

  get #changes() {
    return `${this.#url}/changes`;
  }

  /** Observe the object until the description is whole. Rejects with a SetUpError. */
  async description() {
    const whole = new Promise((resolve) => {
      this.#isWhole = resolve;
    });
    this.#listening = this.#signalling.bus.addListener(this.#changes, (message) =>
      this.#changed(message),
    );
    await this.#signalling.claim([this.#changes]);
    this.#described.read(await this.#signalling.dataOf(this.#url, this.#own));
    if (!this.#described.description) await whole;
    return this.#described.description;
  }

  /** Hand over the candidates that came, and from now on those that come. */
  giveCandidates(onCandidate) {
    this.#onCandidate = onCandidate;
    for (const each of this.#described.candidates) onCandidate(each);
  }

  /** Observe it no longer. */
  free() {
    if (!this.#listening) return;
    this.#listening.remove();
    this.#listening = null;
    this.#signalling.unclaim([this.#changes]);
  }

  #changed({ type, from, body }) {
    if (type !== "update" || from !== this.#url) return;
    for (const each of this.#described.change(body ?? {})) this.#onCandidate(each);
    if (this.#described.description) this.#isWhole();
  }
}
