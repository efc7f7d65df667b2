/** A P2P stub in its sandbox, as the core sees it: what it is handed, what it claims, what it may say. */

import { keepNewest } from "./states.js";

const NODE_SM = /^domain:\/\/msg-node\.[^/]+\/sm$/;
const MAX_CLAIMS = 1_000; // addresses of connection objects
export const MAX_HANDED = 50_000; // messages that the stubs of a runtime may hand back

export class HandedStub {
  /** Told what it says on its `/status`. */
  onStatus = () => {};
  #bus;
  #own; // addresses below the runtime that are its own
  #items;
  #claims = new Map(); // address -> listener
  #handed; // of messages, of all stubs -> their headers

  /** @param of {url, handlerURL: where it is asked below the runtime's URL, sandbox, handed: a map that the stubs share} */
  constructor(bus, { url, handlerURL, sandbox, handed = new Map() }) {
    [this.#bus, this.url, this.sandbox, this.#handed] = [bus, url, sandbox, handed];
    this.#own = new Set([url, handlerURL]);
    this.#items = [...this.#own].map((address) => this.#listen(address));
    this.#items.push(
      bus.addListener(
        `${url}/status`,
        ({ from, body }) => from === url && this.onStatus(body ?? {}),
      ),
    );
  }

  #listen(address) {
    return this.#bus.addListener(address, (message) => {
      if (!this.sandbox.post(this.url, message))
        this.#bus.refuse(message, 503, `${this.url} takes no more messages.`);
    });
  }

  /** Note a message that it is handed. Returns the stub's URL. */
  takes({ id, type, from, to }) {
    const header = { id, type, from, to };
    keepNewest(this.#handed, this.#keyOf(header), { header, stub: this.url }, MAX_HANDED);
    return this.url;
  }

  /** Whether it may say this, though it is from an address of the runtime's. */
  mayPost(message) {
    return this.#isOf(message) || this.#handed.has(this.#keyOf(message));
  }

  #isOf({ from }) {
    return this.#own.has(from) || this.#claims.has(from);
  }

  /** Whether it speaks for itself; what it claims at a node is delivered to it from now on. */
  isOwn(message) {
    if (!this.#isOf(message)) return false;
    if (NODE_SM.test(message.to)) this.#claimed(message);
    return true;
  }

  #claimed({ type, body }) {
    for (const address of [body?.resources, body?.subscribe].flat()) {
      if (typeof address !== "string" || !address.startsWith("connection:")) continue;
      if (type === "unsubscribe") {
        this.#claims.get(address)?.remove();
        this.#claims.delete(address);
      } else if (
        type === "subscribe" &&
        this.#claims.size < MAX_CLAIMS &&
        !this.#bus.isHeard(address)
      ) {
        this.#claims.set(address, this.#listen(address));
      }
    }
  }

  /** Whether it was handed this message; asked once. */
  handedBack(message) {
    return this.#handed.delete(this.#keyOf(message));
  }

  /** It has ended: who waits for an answer is told. */
  refuseAll(reason) {
    for (const [key, { header, stub }] of this.#handed) {
      if (stub !== this.url) continue;
      this.#handed.delete(key);
      if (header.type !== "response" && this.#bus.isAwaited(header))
        this.#bus.refuse(header, 503, `${this.url} ended: ${reason}`);
    }
  }

  #keyOf({ id, type, from, to }) {
    return `${this.url}\n${type}\n${from}\n${to}\n${id}`;
  }

  /** Nothing is delivered to it any more. */
  remove() {
    for (const item of [...this.#items, ...this.#claims.values()]) item.remove();
    this.#claims.clear();
  }
}
