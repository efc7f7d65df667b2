/**
 * What a runtime asks of nodes as `<runtime URL>/sm`: the addresses of its hyperties, and subscriptions.
 *
 * What a node held for a stub that was started anew is subscribed again.
 */

import { domainOf, isBelow } from "../addresses.js";
import { Refusal, askUntilAnswered } from "./talk.js";

export class NodeSubscriptions {
  #bus;
  #url;
  #attach;
  #claims = new Map(); // hyperty -> {done: promise, item}
  #live = new Map(); // domain -> the stub that was live last
  #item;
  /** Called with a domain whose node has lost what it held for this runtime. */
  onLost = () => {};

  /** @param attach has a hyperty hear an address */
  constructor(bus, attach) {
    this.#bus = bus;
    this.#url = `${bus.runtimeURL}/sm`;
    this.#attach = attach;
    this.#item = bus.addListener(`${bus.runtimeURL}/status`, ({ body }) => this.#status(body));
  }

  close() {
    this.#item.remove();
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

  /** It need not do so any more. */
  async unclaim(hyperty) {
    this.forget(hyperty);
    await this.ask("unsubscribe", hyperty, [hyperty], hyperty).catch(() => {}); // it ends with the session
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

  /** A stub that was started anew has no session, and at a gap a policy may have ended what one holds: say all again. */
  #status({ value, resource } = {}) {
    if (typeof resource !== "string") return;
    const domain = domainOf(resource);
    if (!this.#hasLost(value, resource, domain)) return;
    for (const hyperty of this.#claims.keys())
      if (domainOf(hyperty) === domain && !this.#isOwn(hyperty))
        this.announce(hyperty, [hyperty], hyperty);
    this.onLost(domain);
  }

  /** Whether the node of a domain has lost what it held for us, as far as a stub's word says. */
  #hasLost(value, stub, domain) {
    const before = this.#live.get(domain);
    if (value === "live") this.#live.set(domain, stub);
    if (value === "live") return before !== undefined && before !== stub; // after a log-out
    return value === "gap" || (value === "created" && before === stub);
  }

  /** Addresses below the runtime's lead here anyway. */
  #isOwn(hyperty) {
    return isBelow(hyperty, this.#bus.runtimeURL);
  }
}
