/**
 * Two links, a node between them and a channel that does what a test wants of it.
 *
 * The node keeps the order of each direction and loses nothing. The channel keeps it too, until it is
 * cut (packets vanish, nobody is told), closed (both are told), or made to repeat or swap frames.
 */

import assert from "node:assert/strict";
import { Link } from "../src/p2p/link.js";
import { TIMERS } from "../src/p2p/settings.js";

const FULL = 64 * 1024;

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
  said = 0; // numbers
  longest = null; // text that arrived
  isFull = undefined; // whether the channel has no room; undefined: as it is filled
  mostInChannel = 0;
  isSlow = false; // its checks take time
  other;

  constructor(world, timers) {
    this.world = world;
    this.link = new Link(this, timers);
  }

  toChannel(frame) {
    if (!this.world.isUp || this.world.isCut) return;
    this.channel.push(frame);
    this.mostInChannel = Math.max(this.mostInChannel, this.#inChannel());
  }

  hasRoom() {
    return this.isFull === undefined ? this.#inChannel() < FULL : !this.isFull;
  }

  #inChannel() {
    return this.channel.reduce((sum, { length }) => sum + length, 0);
  }

  toNode(message) {
    const deliver = () => {
      this.other.arrived.push(message.id);
      this.other.by.node += 1;
    };
    this.node.push(Object.assign(deliver, { id: message.id }));
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

  take({ id, text = null }) {
    if (this.isSlow && this.world.random() < 0.5) return false;
    this.longest ??= text;
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

  say(count = 1) {
    for (; count > 0; count -= 1) this.send({ id: (this.said += 1) - 1, type: "create" });
  }

  send(message, isForNode = false, size = 100) {
    this.link.send(message, size, this.world.now, isForNode);
  }
}

/** Both sides, and time. */
export class World {
  now = 0;
  mark = 0;
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

  /** The first of these happens that can: "node", "channel", "step" or "tick". */
  any(ways) {
    const steps = { node: "stepNode", channel: "stepChannel", step: "step", tick: "tick" };
    return ways.some((way) => this[steps[way]]());
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

/** What the steps of a case do; see p2p-cases.jsonl. `mark` is when time is counted from. */
const ACTS = {
  live: (world) => {
    assert.ok(world.open());
    world.settle();
    assert.deepEqual([world.a.link.way, world.b.link.way], ["channel", "channel"]);
    world.mark = world.now;
  },
  open: (world) => assert.ok(world.open()),
  settle: (world) => world.settle(),
  cut: (world) => world.cut(),
  close: (world) => world.close(),
  again: (world) => (world.epochs -= 1),
  tick: (world) => world.tick(),
  node: (world) => {
    while (world.stepNode());
  },
  channel: (world) => {
    while (world.stepChannel());
  },
  step: (world, count) => {
    for (; count > 0; count -= 1) world.step();
  },
  loop: (world, count, ...ways) => {
    for (; count > 0; count -= 1) assert.ok(world.any(ways));
  },
  until: (world, side, way, ...ways) => {
    while (world[side].link.way !== way) assert.ok(world.any(ways), "nothing happens any more");
  },
  pass: (world, milliseconds) => {
    world.now += milliseconds;
    world.a.link.tick(world.now);
  },
  mark: (world) => (world.mark = world.now),
  now: ({ now, mark }, least, most) =>
    assert.ok(now - mark >= least && now - mark <= most, now - mark),
  say: (world, side, count) => world[side].say(count),
  burst: (world, side, count) => {
    for (let n = 0; n < count; n += 1) {
      world[side].say();
      if (n % 3) world.step();
    }
  },
  send: (world, side, message, isForNode) => world[side].send(message, isForNode),
  byNode: (world, side, id, to) => world[side].toNode({ id, type: "create", to }),
  long: (world, side, length) => {
    const text = "ü🙂".repeat(length).slice(0, length);
    world[side].send({ id: (world[side].said += 1) - 1, type: "create", text }, false, length);
  },
  isLong: (world, side, length) =>
    assert.equal(world[side].longest, "ü🙂".repeat(length).slice(0, length)),
  many: (world, side, count, size) => {
    const text = "x".repeat(size);
    for (let id = 0; id < count; id += 1) world[side].send({ id, text }, false, size);
  },
  mostInChannel: (world, side, most) => assert.ok(world[side].mostInChannel <= most),
  room: (world, side) => (world[side].isFull = false),
  frame: (world, side, text) => world[side].link.frame(text, world.now),
  bytes: (world, side, size) => {
    const frame = new Uint8Array(24 + size);
    [..."abcdefghijkl"].forEach((each, index) => (frame[2 * index] = each.charCodeAt(0)));
    world[side].link.frame(frame.buffer, world.now);
  },
  fenceAgain: (world, side, address) => world[side].link.fenceAgain(address, world.now),
  resume: (world, side, received) =>
    assert.notEqual(world[side].link.resumeAsked(world[side].link.epoch, received), null),
  restart: (world, side) => (world[side].link = new Link(world[side])),
  bye: (world, side) => world[side].link.bye("closing", world.now),
  lose: (world, side) => (world[side].channel = []),
  hold: (world, side) => ([world[side].held, world[side].node] = [world[side].node, []]),
  release: (world, side) => world[side].node.unshift(...world[side].held),
  all: (world) => {
    world.settle();
    for (const { arrived, refused, other } of world.sides) {
      assert.deepEqual(arrived, [...Array(other.said).keys()]);
      assert.deepEqual(refused, []);
    }
  },
  resent: ({ a, b }) => assert.ok(a.link.resent + b.link.resent > 0),
  is: (world, side, expected) => {
    for (const [name, value] of Object.entries(expected))
      assert.deepEqual(valueOf(world[side], name), value, name);
  },
  isNot: (world, side, name, values) =>
    assert.ok(!values.some((each) => world[side][name].includes(each))),
  inOrder: (world, side, ids) =>
    assert.deepEqual(
      world[side].arrived.filter((id) => ids.includes(id)),
      ids,
    ),
  lostOrArrived: (world, side, count) => {
    const { refused, other } = world[side];
    assert.ok(refused.length && refused.every(([, code]) => code === 503));
    assert.equal(new Set(other.arrived).size, other.arrived.length, "nothing twice");
    assert.equal(new Set([...refused.map(([id]) => id), ...other.arrived]).size, count);
  },
};

function valueOf(side, name) {
  if (name === "sorted") return [...side.arrived].sort((one, other) => one - other);
  if (name === "atNode") return side.node.map(({ id }) => id).filter((id) => id !== undefined);
  if (name === "channel") return side.channel.length;
  return name in side ? side[name] : side.link[name];
}

/** Do what a case says. */
export function play({ steps, seed = 1, timers = {} }) {
  const world = new World(seed, timers);
  for (const [act, ...words] of steps) ACTS[act](world, ...words);
}

/** Rounds of talk over channels that end in every way, the same ones in both languages; returns the world. */
export function talk(seed) {
  const [world, random] = [new World(seed), randomOf(seed + 1000)];
  const below = (most) => Math.floor(random() * most);
  const either = () => world.sides[below(2)];
  world.b.isSlow = seed % 2 === 1;
  const ends = [
    () => world.cut(),
    () => world.close(),
    () => either().link.bye("closing", world.now),
    () => world.sides.forEach(({ channel }) => channel.length && channel.unshift(channel[0])),
    () => world.sides.forEach(({ channel }) => channel.reverse()),
    () => {
      ACTS.node(world); // a node that takes longer than a resume may loses what it says
      world.tick();
    },
  ];
  for (let round = below(6); round > 0; round -= 1) {
    either().say(below(50));
    world.open();
    ACTS.step(world, below(150));
    for (const side of world.sides) side.say(below(50));
    ACTS.step(world, below(150));
    ends[below(ends.length)]();
    either().say(below(50));
    ACTS.step(world, below(50));
    ends[below(ends.length)]();
  }
  ACTS.all(world);
  return world;
}
