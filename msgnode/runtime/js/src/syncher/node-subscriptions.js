/** What the sync manager asks of nodes: subscriptions, and the addresses of hyperties. */

import { domainOf, isBelow } from "../addresses.js";
import { Refusal, askUntilAnswered } from "./talk.js";

export class NodeSubscriptions {
  #bus;
  #url;
  #attach;
  #claims = new Map(); // hyperty -> {done: promise, item}

  /**
   * @param url who asks: the runtime's sync manager
   * @param attach has a hyperty hear an address
   */
  constructor(bus, url, attach) {
    this.#bus = bus;
    this.#url = url;
    this.#attach = attach;
  }

  /** Have the home node deliver here what is for a hyperty of this runtime. Rejects with a Refusal. */
  claim(hyperty) {
    const known = this.#claims.get(hyperty);
    if (known) return known.done;
    const done = this.#isOwn(hyperty)
      ? Promise.resolve()
      : this.ask("subscribe", hyperty, [hyperty], hyperty);
    this.#claims.set(hyperty, {
      done,
      item: this.#attach(hyperty, `${this.#bus.runtimeURL}/status`),
    });
    done.catch(() => this.forget(hyperty));
    return done;
  }

  /** A hyperty has gone, or was refused. */
  forget(hyperty) {
    this.#claims.get(hyperty)?.item?.remove();
    this.#claims.delete(hyperty);
  }

  /** Subscribe or unsubscribe at the node of an address. Rejects with a Refusal. */
  ask(type, address, resources, source) {
    const domain = domainOf(address);
    const body =
      type === "unsubscribe"
        ? { resource: resources[0], resources, source }
        : { resources, source };
    const message = { type, from: this.#url, to: `domain://msg-node.${domain}/sm`, body };
    return new Promise((resolve, reject) => {
      askUntilAnswered(this.#bus, message, ({ body: told }) => {
        if (told.code >= 300)
          reject(
            new Refusal(
              told.code,
              `The node of ${domain} answered ${told.code}: ${told.desc ?? told.description ?? ""}`,
            ),
          );
        else if (told.code >= 200) resolve();
      });
    });
  }

  /** Subscribe again what a node has forgotten. */
  announce(address, resources, source) {
    this.ask("subscribe", address, resources, source).catch((error) =>
      this.#bus.report("data.not-announced", { error }),
    );
  }

  /** The home node has forgotten all of them. */
  announceHyperties() {
    for (const hyperty of this.#claims.keys())
      if (!this.#isOwn(hyperty)) this.announce(hyperty, [hyperty], hyperty);
  }

  /** Addresses below the runtime's lead here anyway. */
  #isOwn(hyperty) {
    return isBelow(hyperty, this.#bus.runtimeURL);
  }
}
