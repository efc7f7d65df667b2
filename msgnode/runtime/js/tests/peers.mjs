/** Runtimes that share data objects through a node that a test can make lose, repeat and delay messages. */

import { MessageBus } from "../src/messagebus.js";
import { answerTo, errorBody, isAnswerable } from "../src/messages.js";
import { NodeSubscriptions } from "../src/syncher/node-subscriptions.js";
import { Registrations } from "../src/syncher/registrations.js";
import { SyncManager } from "../src/syncher/sync-manager.js";
import { Syncher } from "../src/syncher/syncher.js";
import { FakeClock, settled } from "./fake-clock.mjs";

/** What a node does for data objects: subscriptions, and delivery to who has subscribed. */
export class FakeNode {
  clock = new FakeClock();
  peers = [];
  seen = []; // every message that came
  subscribers = new Map(); // address -> Set of peers
  learned = new Map(); // address that was a `from` -> its peer
  /** (message, peer): how many times it is handed on. */
  copies = () => 1;

  peer(options) {
    const peer = new Peer(this, this.peers.length + 1, options);
    this.peers.push(peer);
    return peer;
  }

  received(peer, message) {
    this.seen.push(message);
    const { type, from, to, body = {} } = message;
    if (!this.subscribers.has(from)) this.learned.set(from, peer);
    if (to === "domain://msg-node.d/sm") {
      for (const address of body.resources) {
        const all = this.subscribers.get(address) ?? new Set();
        if (type === "subscribe") all.add(peer);
        else all.delete(peer);
        this.subscribers.set(address, all);
      }
      this.hand(peer, answerTo(message, { code: 200 }));
    } else if (to === "domain://registry.d") this.hand(peer, answerTo(message, { code: 200 }));
    else {
      const found = [...(this.subscribers.get(to) ?? [])];
      const below = this.peers.find(({ url }) => to.startsWith(`${url}/`));
      const known = below ?? (found.length ? undefined : this.learned.get(to));
      if (known) found.push(known);
      for (const each of found) if (each !== peer) this.hand(each, message);
      if (!found.length && isAnswerable(message))
        this.hand(peer, answerTo(message, errorBody(404, `Nobody listens to ${to}.`)));
    }
  }

  hand(peer, message) {
    for (let copies = this.copies(message, peer); copies > 0; copies -= 1)
      peer.bus.postFrom(peer.stub, message);
  }

  /** What went to an address, by type. */
  sent(type, to) {
    return this.seen.filter((message) => message.type === type && message.to === to);
  }

  async turn(milliseconds) {
    await settled();
    await this.clock.turn(milliseconds);
  }
}

/** A runtime with one hyperty. */
class Peer {
  errors = [];

  constructor(node, number, { storage } = {}) {
    const { clock } = node;
    this.url = `runtime://d/${number}`;
    this.stub = `runtime://d/protostub/${number}`;
    this.hyperty = `hyperty://d/${number}`;
    this.bus = new MessageBus(this.url, { clock });
    this.bus.onError((error) => this.errors.push(error));
    this.bus.resolver = { route: () => this.stub, isHome: (via) => via === this.stub };
    this.bus.addListener(this.stub, (message) => node.received(this, message));
    const claims = new NodeSubscriptions(this.bus, () => undefined);
    const registrations = new Registrations(this.bus, "d");
    this.parts = [claims, registrations];
    const { bus } = this;
    const parts = { bus, domain: "d", node: claims, registrations, storage };
    this.manager = new SyncManager(parts);
    this.bus.addListener(`${this.url}/sm`, (message) => {
      if (message.type !== "response") this.manager.receive(message);
    });
    this.syncher = this.newSyncher();
  }

  newSyncher(url = this.hyperty) {
    return new Syncher({ url, bus: this.bus, runtimeURL: this.url });
  }

  /** The runtime says what its stub said. */
  say(value) {
    this.bus.postMessage({
      type: "update",
      from: this.url,
      to: `${this.url}/status`,
      body: { value, resource: this.stub },
    });
  }

  closeParts() {
    for (const each of [this.manager, ...this.parts]) each.close();
  }

  close() {
    this.closeParts();
    this.bus.close();
  }
}

/** A storage such as localStorage. */
export function newStorage(kept = {}) {
  return {
    kept,
    getItem: (key) => kept[key] ?? null,
    setItem: (key, value) => (kept[key] = value),
    removeItem: (key) => delete kept[key],
  };
}
