/**
 * Domain registries that are asked over REST: a Client-Server interface of protofly.
 *
 * A message to domain://registry.<domain> of a domain that the option `registries` names goes there as an HTTP request
 * instead of through a stub; no code of that domain is loaded for it.
 *
 * Rules
 * - It passes the runtime's policies as any message that goes out, and is answered as the node would.
 * - A sender's requests are sent one after the other, in order; AT_ONCE of all senders at a time.
 * - Each is answered within TIME of being posted, waiting included: else 504. More than MAX_WAITING at a time are
 *   answered 503. An answer has at most MAX_ANSWER bytes: else 502.
 * - The key of a domain goes to the base URL of that domain alone; no redirect is followed.
 */

import { LoadError } from "./errors.js";
import { answerTo } from "./messages.js";
import { RegistryRefusal, bodyOfAnswer, callOf } from "./registry-calls.js";

const TIME = 12_000; // ms
const AT_ONCE = 8;
const MAX_WAITING = 100;
const MAX_ANSWER = 1_000_000; // bytes

export class RestRegistries {
  #bus;
  #catalogue;
  #registries;
  #keys;
  #clock;
  #count = 0; // that are not answered
  #asking = 0;
  #lanes = new Map(); // sender -> his requests that wait or are being carried out

  /**
   * @param parts {bus, catalogue: asks over HTTP}
   * @param options {registries: domain to base URL, registryKeys: domain to API key, clock}
   */
  constructor({ bus, catalogue }, { registries = {}, registryKeys = {}, clock }) {
    [this.#bus, this.#catalogue, this.#registries, this.#keys, this.#clock] = [
      bus,
      catalogue,
      registries,
      registryKeys,
      clock,
    ];
  }

  /** Take a request to the registry of one of the domains: it goes there over REST, or is refused. */
  take(message, domain) {
    if (this.#count >= MAX_WAITING) {
      this.#bus.refuse(message, 503, `Too many requests to the registry of ${domain} wait.`);
      return;
    }
    this.#count += 1;
    const job = { message, domain, isOver: false, isAsking: false, giveUp: new AbortController() };
    const late = () =>
      this.#end(job, () =>
        this.#bus.refuse(message, 504, `The registry of ${domain} does not answer in time.`),
      );
    job.timer = this.#clock.setTimeout(late, TIME);
    const lane = this.#lanes.get(message.from);
    if (lane) lane.push(job);
    else this.#lanes.set(message.from, [job]);
    this.#next();
  }

  /** Give up what is under way. */
  close() {
    for (const job of [...this.#lanes.values()].flat()) this.#end(job, () => {});
  }

  /** Carry out the first request of each sender, as far as there is room. */
  #next() {
    for (const [job] of [...this.#lanes.values()]) {
      if (this.#asking >= AT_ONCE) return;
      if (!job.isAsking) this.#carryOut(job);
    }
  }

  async #carryOut(job) {
    job.isAsking = true;
    this.#asking += 1;
    let body;
    try {
      body = await this.#asked(job);
    } catch (error) {
      const isKnown = error instanceof RegistryRefusal || error instanceof LoadError;
      this.#end(job, () =>
        this.#bus.refuse(job.message, isKnown ? error.code : 500, error.message),
      );
    }
    if (body) this.#end(job, () => this.#bus.postMessage(answerTo(job.message, body)));
  }

  async #asked({ message: { type, body }, domain, giveUp }) {
    const call = callOf(type, body);
    const headers = call.body ? { "Content-Type": "application/json" } : {};
    if (this.#keys[domain]) headers.Authorization = `Bearer ${this.#keys[domain]}`;
    const request = {
      method: call.method,
      headers,
      signal: giveUp.signal,
      ...(call.body ? { body: JSON.stringify(call.body) } : {}),
    };
    const url = `${this.#registries[domain].replace(/\/+$/, "")}/${call.path}`;
    const { status, text } = await this.#catalogue.exchange(
      url,
      request,
      MAX_ANSWER,
      `The registry of ${domain}`,
    );
    let found;
    try {
      found = JSON.parse(text);
    } catch {
      // told by its status, or as no JSON
    }
    return bodyOfAnswer(call, status, found);
  }

  #end(job, answer) {
    if (job.isOver) return;
    job.isOver = true;
    this.#clock.clearTimeout(job.timer);
    job.giveUp.abort();
    this.#count -= 1;
    if (job.isAsking) this.#asking -= 1;
    const { from } = job.message;
    const lane = this.#lanes.get(from).filter((each) => each !== job);
    if (lane.length) this.#lanes.set(from, lane);
    else this.#lanes.delete(from);
    answer();
    this.#next();
  }
}
