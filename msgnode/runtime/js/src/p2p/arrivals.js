/** What channels bring: into the bus, if its sender is in the runtime at the other end. */

import { isBelow, isP2P, runtimeOf } from "../addresses.js";
import { isPrivateStatus } from "../inbound.js";
import { answerTo, codeOf, errorBody, isAnswerable, withoutMarks } from "../messages.js";
import { Forgeries, namesOf } from "./senders.js";
import { plain } from "./states.js";

/** Takes the messages of all channels of one runtime. */
export class Arrivals {
  #bus;
  #whereabouts;
  #forgeries = new Forgeries();

  constructor(bus, whereabouts) {
    this.#bus = bus;
    this.#whereabouts = whereabouts;
  }

  /** Take in what came from a peer; false if its sender has to be looked up first, `then` being called after that. */
  take(peer, message, then = null) {
    if (![message.type, message.from, message.to].every((each) => typeof each === "string" && each))
      return this.#bad(message);
    for (const name of namesOf(message)) {
      if (isBelow(plain(name), plain(peer.runtime))) continue;
      const record = runtimeOf(name) ? {} : this.#whereabouts.of(name);
      if (record === null) {
        if (then) this.#whereabouts.ask(name, then, then);
        else this.#whereabouts.ask(name, peer, () => peer.proceed());
        return false;
      }
      if (typeof record.runtime !== "string" || plain(record.runtime) !== plain(peer.runtime)) {
        this.#forbid(peer, message, `${name} is not known to be in ${peer.runtime}.`);
        return true;
      }
    }
    if (isP2P(message.to)) {
      this.#forbid(peer, message, "Signalling goes through the node.");
      return true;
    }
    if (isPrivateStatus(message.to, this.#bus.runtimeURL)) return this.#bad(message);
    if (message.type.toLowerCase() === "response") {
      if (!this.#bus.isExpected(message, peer.via)) {
        this.#bus.unclaimed(message);
        return true;
      }
      if (codeOf(message.body) === 404) this.#whereabouts.forget(message.from);
    }
    const { body } = message;
    const isText = typeof body === "string";
    try {
      this.#bus.postFrom(
        peer.via,
        withoutMarks({ ...message, body: isText ? { value: body } : (body ?? {}) }),
      );
    } catch {
      return this.#bad(message);
    }
    return true;
  }

  #bad(message) {
    this.#bus.report("p2p.bad", { message, isQuiet: true });
    return true;
  }

  #forbid(peer, message, text) {
    this.#bus.report("p2p.forged", {
      error: new Error(`${peer.runtime} posted as another: ${text}`),
      message,
    });
    if (this.#forgeries.isTooMany(peer.runtime, this.#bus.clock.now()))
      queueMicrotask(() => peer.bye("forbidden"));
    else if (isAnswerable(message) && message.id) {
      const answer = answerTo(message, errorBody(403, text));
      peer.wrap(`${answer.to}\n${answer.id}`);
      peer.send(answer, 0);
    }
  }
}
