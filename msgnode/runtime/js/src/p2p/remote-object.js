/**
 * The other side's connection object as the field writes it: piece by piece, in any order.
 *
 * Rules
 * - The description is in the object, or comes as one change, or as two for its text and its type.
 * - Candidates may come before it, twice, empty, or be of no use; who applies them passes over those.
 * - What comes of anybody but the object, or beyond the limits, is not taken.
 */

import { MAX_CANDIDATES, MAX_SDP } from "./rtc.js";

const MAX_CANDIDATE = 1_024; // characters

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
  #talk;
  #url;
  #own;
  #described;
  #listening = null;
  #isWhole = () => {};
  #onCandidate = () => {};

  /** @param said {url: of the object, own: our stub, which observes it, kind: "offer" or "answer"} */
  constructor(talk, { url, own, kind }) {
    [this.#talk, this.#url, this.#own] = [talk, url, own];
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
    this.#listening = this.#talk.bus.addListener(this.#changes, (message) =>
      this.#changed(message),
    );
    await this.#talk.claim([this.#changes]);
    this.#described.read(await this.#talk.dataOf(this.#url, this.#own));
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
    this.#talk.unclaim([this.#changes]);
  }

  #changed({ type, from, body }) {
    if (type !== "update" || from !== this.#url) return;
    for (const each of this.#described.change(body ?? {})) this.#onCandidate(each);
    if (this.#described.description) this.#isWhole();
  }
}
