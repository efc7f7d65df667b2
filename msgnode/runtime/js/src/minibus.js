/**
 * The MiniBUS of a sandbox: hyperties and stubs know nothing else.
 *
 * What is posted always goes out, to the MessageBUS, even if somebody here listens to the address: it
 * comes back from there, judged. What comes in goes to who waits for that answer; else to the listeners
 * of exactly its `to`, and to `*` as well unless that is a hyperty's address; else to `*`.
 */

import { Bus } from "./bus.js";
import { copyFor, errorBody, recipientsOf } from "./messages.js";

export class MiniBus extends Bus {
  #out;

  /** @param out takes the messages that leave; `options` are those of Bus. */
  constructor(out, options) {
    super(options);
    this.#out = out;
  }

  /** A message from the MessageBUS. It is this bus's own: nobody else holds it. */
  receive(message) {
    this.enqueue(message);
  }

  /** As that of Bus; what is posted from now on is answered 503. */
  close() {
    super.close();
    this.#out = (message) => this.#refuse(message, 503, new Error("The hyperty was closed."));
  }

  // --- for Bus ------------------------------------------------------------------------------------

  accept(message) {
    this.answers.start(message.from, message.id);
    this.#out(message);
  }

  postToMany(message, all, id) {
    for (const to of recipientsOf(all)) this.postMessage({ ...message, to, id });
  }

  tooLarge(message, error) {
    this.#refuse(message, 413, error);
  }

  #refuse({ id, from, to, type }, code, error) {
    if (type === "response") this.report(`undeliverable.${code}`, { error });
    else {
      const body = errorBody(code, error.message);
      this.receive(Object.freeze({ id, type: "response", from: to, to: from, body }));
    }
  }

  process(message) {
    if (message.type === "response" && this.answers.take(message)) return;
    const own = this.listenersOf(message.to);
    const others = this.listenersOf("*");
    const isAlsoForAll = own.length && others.length && !message.to.startsWith("hyperty");
    if (isAlsoForAll) this.deliver(others, copyFor(message));
    if (own.length) this.deliver(own, message);
    else if (others.length) this.deliver(others, message);
    else if (message.type === "response") this.unclaimed(message);
    else this.report("undeliverable.404", { message, isQuiet: true });
  }
}
