/**
 * Two links, a node between them and a channel that does what a test wants of it.
 *
 * The node keeps the order of each direction and loses nothing. The channel keeps it too, until it is
 * cut (packets vanish, nobody is told), closed (both are told), or made to repeat or swap frames.
 */

import { Link } from "../src/p2p/link.js";
import { TIMERS } from "../src/p2p/settings.js";

export const FULL = 64 * 1024;

/** Random numbers below 1 that are the same with each run (mulberry32). */
export function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** One runtime: its link, and what arrived. */
class Side {
  node = []; // on its way from here, through the node
  channel = []; // and on the channel
  arrived = [];
  refused = [];
  by = { node: 0, channel: 0 };
  isSlow = false; // its checks take time
  other;

  constructor(world, timers) {
    this.world = world;
    this.link = new Link(this, timers);
  }

  toChannel(frame) {
    if (this.world.isUp && !this.world.isCut) this.channel.push(frame);
  }

  hasRoom() {
    return this.channel.reduce((sum, { length }) => sum + length, 0) < FULL;
  }

  toNode(message) {
    this.node.push(() => {
      this.other.arrived.push(message.id);
      this.other.by.node += 1;
    });
  }

  ask(method, params) {
    this.node.push(() => {
      const { link, world } = this.other;
      const received =
        method === "fence"
          ? link.fenceAsked(params.epoch, params.k)
            ? 0
            : null
          : link.resumeAsked(params.epoch, params.received, params.bye);
      this.other.node.push(() => this.link.answered(method, params, received, world.now));
    });
  }

  take({ id }) {
    if (this.isSlow && this.world.random() < 0.5) return false;
    this.arrived.push(id);
    this.by.channel += 1;
    return true;
  }

  refuse({ id }, code) {
    this.refused.push([id, code]);
  }

  close() {
    this.world.closedBy(this);
  }

  say(id, size = 100, to = "") {
    this.link.send({ id, type: "create", ...(to && { to }) }, size, this.world.now);
  }

  /** Say something to an address of which it is not known that it is at the other side. */
  sayByNode(id, to) {
    this.toNode({ id, type: "create", to });
  }
}

/** Both sides, and time. */
export class World {
  now = 0;
  isUp = false;
  isCut = false;
  epochs = 0;
  #toTell = [];

  constructor(seed, timers = {}) {
    this.random = randomOf(seed);
    const all = { ...TIMERS, ...timers };
    [this.a, this.b] = this.sides = [new Side(this, all), new Side(this, all)];
    [this.a.other, this.b.other] = [this.b, this.a];
  }

  /** Set up a new channel, as soon as the requester may. */
  open() {
    if (this.isUp || this.a.link.way !== "node" || this.a.link.isOpen) return false;
    while (this.b.link.isOpen || this.b.link.way !== "node")
      if (!this.stepNode() && !this.tick()) return false;
    this.epochs += 1;
    [this.isUp, this.isCut, this.#toTell] = [true, false, []];
    for (const side of this.sides) side.channel = [];
    for (const side of this.#eitherOrder()) side.link.opened(`epoch ${this.epochs}`, this.now);
    return true;
  }

  /** Every packet vanishes, in both directions, and nobody is told. */
  cut() {
    this.isCut = true;
    for (const side of this.sides) side.channel = [];
  }

  /** The channel breaks: what is under way is lost, and both are told, one after the other. */
  close() {
    if (!this.isUp) return;
    this.isUp = false;
    for (const side of this.sides) side.channel = [];
    this.#toTell = this.#eitherOrder();
  }

  /** One side closes it; what it has sent still arrives. */
  closedBy(side) {
    if (!this.isUp) return;
    this.isUp = false;
    this.#toTell.push(side.other);
  }

  stepNode() {
    const ready = this.sides.filter(({ node }) => node.length);
    if (ready.length) this.#one(ready).node.shift()();
    return ready.length > 0;
  }

  stepChannel() {
    const ready = this.sides.filter(({ channel }) => channel.length);
    if (!ready.length) return false;
    const side = this.#one(ready);
    side.other.link.frame(side.channel.shift(), this.now);
    side.link.pump(this.now);
    return true;
  }

  stepTold() {
    const side = this.#toTell.pop();
    side?.link.lost("closed", this.now);
    return side !== undefined;
  }

  stepChecked() {
    const ready = this.sides.filter(({ isSlow, link }) => isSlow && link.hasWaiting());
    for (const { link } of ready) link.proceed(this.now);
    return ready.length > 0;
  }

  /** Go to the moment when something is due. */
  tick() {
    const due = this.sides.map(({ link }) => link.due()).filter((at) => at !== null);
    if (!due.length) return false;
    this.now = Math.max(this.now, Math.min(...due));
    for (const { link } of this.sides) link.tick(this.now);
    return true;
  }

  /** One thing happens, whichever. */
  step() {
    const steps = ["stepNode", "stepChannel", "stepTold", "stepChecked"];
    const first = Math.floor(this.random() * 4);
    return [0, 1, 2, 3].some((index) => this[steps[(first + index) % 4]]());
  }

  /** Let everything happen that is under way, and pass time until no message waits. */
  settle(limit = 200_000) {
    for (let steps = 0; steps < limit; steps += 1) {
      if (this.step()) continue;
      if (this.sides.every(({ link }) => link.isQuiet())) return;
      if (!this.tick()) throw new Error("something waits for ever");
    }
    throw new Error("the world does not come to rest");
  }

  #one(list) {
    return list[Math.floor(this.random() * list.length)];
  }

  #eitherOrder() {
    return this.random() < 0.5 ? [this.a, this.b] : [this.b, this.a];
  }
}
