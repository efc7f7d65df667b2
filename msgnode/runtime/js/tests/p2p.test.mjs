/** P2P connections without a network: the cases that both languages share, and what is JavaScript's alone. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { FieldLink } from "../src/p2p/field-link.js";
import { BadFrame, Transfers, join, read, write } from "../src/p2p/frames.js";
import { KnownRuntimes } from "../src/p2p/remote-runtime.js";
import { isForNode } from "../src/p2p/senders.js";
import { TIMERS } from "../src/p2p/settings.js";
import { Described } from "../src/p2p/signalling.js";
import * as states from "../src/p2p/states.js";
import { World, play, talk } from "./p2p-world.mjs";
import { cases } from "./cases.mjs";
import { playRuntimes } from "./p2p-runtimes.mjs";

const { HANDLER, NO_RETURN, REQUESTER, after } = states;
const [quarantine, redials, invitations] = [
  new states.Quarantine(),
  new states.Redials(),
  new states.Invitations(),
];

/** What is asked of each part by its rows, whose last word is the answer. */
const ROWS = {
  requester: (...words) => after(REQUESTER, ...words),
  handler: (...words) => after(HANDLER, ...words),
  noReturn: (event) => NO_RETURN.has(event),
  statusOf: states.statusOf,
  staysRequester: states.staysRequester,
  runtimeOfHandler: states.runtimeOfHandler,
  isForNode,
  quarantine: () => quarantine.failed("b", 0),
  redials: (now, jitter) => redials.next(now, jitter),
  invitations: (...words) => invitations.isTooMany(...words),
  frames: (text) => {
    try {
      return read(text);
    } catch (error) {
      assert.ok(error instanceof BadFrame);
      return null;
    }
  },
  written: (length) => {
    const frames = write(7, { id: 1, text: "ä".repeat(length) }, 3).map((each) => JSON.parse(each));
    return frames.map(({ uuid, seq, ack, part = null, text = "" }) => [
      uuid,
      seq,
      ack,
      part,
      text.length,
    ]);
  },
};

/** A remote runtime as far as it is kept; "1" and "1b" are tabs of one runtime URL. */
class Kept {
  stubs = new Set();
  usedAt = 0;
  link = { epoch: "" };
  instance = "";
  handler = "";
  needed = false;
  isGone = false;
  isOpen = false;
  handling = false;

  constructor(key) {
    this.runtime = `hyperty-runtime://d/${Number.parseInt(key, 10)}`;
    this.via = `runtime://d/p2prequester/${key}`;
  }

  get isBusy() {
    return this.isOpen || this.handling;
  }

  isNeeded = () => this.needed;
  forget = () => (this.isGone = true);
}

/** What the steps of a case of KnownRuntimes do. */
function keep({ steps, timers }) {
  const [known, kept] = [new KnownRuntimes(timers), new Map()];
  const of = (key) => kept.get(key) ?? kept.set(key, new Kept(key)).get(key);
  const is = (found, key) => assert.equal(found, key === null ? undefined : of(key));
  const gone = () => [...kept].filter(([, { isGone }]) => isGone).map(([key]) => key);
  const acts = {
    add: (key, now, isAdded) => assert.equal(known.add(of(key), now), isAdded),
    set: (key, { epoch, ...more }) => {
      Object.assign(of(key), more);
      if (epoch) of(key).link.epoch = epoch;
    },
    of: (runtime, handler, key) => is(known.of(runtime, handler), key),
    toDial: (runtime, handler, key) => is(known.toDial(runtime, handler), key),
    instance: (runtime, id, handler, key) => is(known.instance(runtime, id, handler), key),
    ofVia: (key, found) => is(known.ofVia(of(key).via), found),
    ofStub: (stub, key) => is(known.ofStub(stub), key),
    allOf: (runtime, keys) =>
      assert.deepEqual(new Set(known.allOf(runtime)), new Set(keys.map(of))),
    signals: (key, stub, isTaken) => assert.equal(known.signals(of(key), stub), isTaken),
    forgetUnused: (now) => known.forgetUnused(now),
    gone: (keys) => assert.deepEqual(gone().sort(), keys),
    size: (count) => assert.equal(known.size, count),
  };
  for (const [act, ...words] of steps) acts[act](...words);
}

/** What the steps of a case of FieldLink do. */
function leave({ steps, timers }) {
  const did = { sent: [], refused: [], node: [], closed: [], isFull: false, isSlow: false };
  const outlet = {
    toChannel: (frame) => did.sent.push(frame),
    hasRoom: () => !did.isFull,
    toNode: ({ id }) => did.node.push(id),
    take: () => !did.isSlow,
    refuse: ({ id }, code) => did.refused.push([id, code]),
    isAwaited: ({ isAwaited }) => isAwaited,
    close: (reason) => did.closed.push(reason),
  };
  const link = new FieldLink(outlet, { ...TIMERS, ...timers });
  const frame = (textMessage, now = 0) =>
    link.frame(JSON.stringify({ data: { textMessage } }), now);
  const is = (name) => (expected) => assert.deepEqual(did[name], expected);
  const acts = {
    send: (id, size, now, isAwaited = false) => link.send({ id, from: "a", isAwaited }, size, now),
    answer: (id, to, now) => frame({ type: "response", id, to }, now),
    frame: (size) => frame({ id: 1, body: { value: "x".repeat(size) } }),
    full: () => (did.isFull = true),
    slow: () => (did.isSlow = true),
    lost: (now) => link.lost("closed", now),
    tick: (now) => link.tick(now),
    unsure: (count) => assert.equal(link.unacknowledged, count),
    sent: (count) => assert.equal(did.sent.length, count),
    refused: is("refused"),
    node: is("node"),
    closed: is("closed"),
    rest: () => assert.deepEqual([link.way, link.due(), link.isQuiet()], ["node", null, true]),
  };
  link.opened("1", 0);
  for (const [act, ...words] of steps) acts[act](...words);
}

/** What the steps of a case of Described do. */
function describe({ steps }) {
  const described = new Described("offer");
  const acts = {
    read: (data) => described.read(data),
    change: (attribute, value, count) =>
      assert.equal(described.change({ attribute, value }).length, count),
    long: (attribute, length) => described.change({ attribute, value: "x".repeat(length) }),
    is: (expected) => assert.deepEqual(described.description, expected),
    candidates: (count) => assert.equal(described.candidates.length, count),
  };
  for (const [act, ...words] of steps) acts[act](...words);
}

/** What the steps of a case of Transfers do; each says the percentage, the content or that it is bad. */
function transfer({ steps }) {
  const transfers = new Transfers();
  const message = { id: 1, type: "response", from: "b", to: "a" };
  const acts = {
    begin: (uuid, size) => transfers.begin({ kind: "begun", uuid, size, message }),
    bytes: (uuid, size) => transfers.add({ kind: "bytes", uuid, piece: new ArrayBuffer(size) }),
    text: (uuid, piece) => transfers.add({ kind: "text", uuid, piece }),
  };
  for (const [act, uuid, said, expected = null] of steps) {
    if (expected === "bad") assert.throws(() => acts[act](uuid, said), BadFrame);
    else {
      const { body } = acts[act](uuid, said) ?? {};
      assert.equal(body?.value?.content ?? body?.value ?? null, expected);
    }
  }
}

const PLAYS = {
  link: play,
  known: keep,
  runtimes: playRuntimes,
  fieldLink: leave,
  described: describe,
  transfers: transfer,
};

for (const { of, name, rows, ...given } of await cases("p2p")) {
  if (rows)
    test(`${name}: ${of}`, () => {
      for (const row of rows)
        assert.deepEqual(ROWS[of](...row.slice(0, -1)), row.at(-1), JSON.stringify(row));
    });
  if (PLAYS[of]) test(name, () => PLAYS[of](given));
  if (of === "talks")
    test(name, () => {
      const all = Array.from({ length: given.seeds }, (_, seed) => talk(seed).sides).flat();
      const sum = (numberOf) => all.reduce((total, side) => total + numberOf(side), 0);
      const found = [sum(({ link }) => link.resent), sum(({ by }) => by.channel)];
      assert.deepEqual(found, [given.resent, given.byChannel]);
    });
}

test("frames that are neither text nor long enough, and pieces that make no message, are bad", () => {
  for (const hostile of [new ArrayBuffer(8), null, undefined, "[".repeat(5000)])
    assert.throws(() => read(hostile), BadFrame);
  assert.throws(() => join(["[", "]"]), BadFrame);
});

// --- the other end lies -------------------------------------------------------------------------------

test("failures of ten thousand runtimes are remembered and no more", () => {
  const quarantine = new states.Quarantine();
  for (let n = 0; n <= 10_000; n += 1) quarantine.failed(`runtime://d/${n}`, 0);
  assert.deepEqual(
    [quarantine.until("runtime://d/0"), quarantine.until("runtime://d/1")],
    [0, 30_000],
  );
});

test("a channel that refuses a frame leaves none for the next channel", () => {
  const world = new World(1);
  assert.ok(world.open());
  world.settle();
  const { a, b } = world;
  let sent = 0;
  a.hasRoom = () => false;
  for (let n = 0; n < 4; n += 1) a.say();
  a.hasRoom = () => true;
  a.toChannel = () => (sent += 1) === 2 && a.link.lost("closed", world.now);
  a.link.pump(world.now);
  for (const name of ["hasRoom", "toChannel"]) delete a[name];
  world.settle();
  assert.ok(world.open());
  for (let n = 4; n < 8; n += 1) a.say();
  world.settle();
  assert.deepEqual(b.arrived, [0, 1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual([a.link.isOpen, b.link.faults], [true, 0]);
});

test("who sends more than may wait for a check ends his channel", () => {
  const bytes = new Uint8Array(30_000);
  for (const [value, most] of [
    ["x".repeat(10_000), 9],
    ["x".repeat(40_000), 2],
    [{ content: bytes }, 3],
  ]) {
    const world = new World(1, { inboxSize: 100_000 });
    assert.ok(world.open());
    world.settle();
    const { a } = world;
    let [sent, isSlow] = [0, false];
    a.take = () => !isSlow;
    const send = () => {
      sent += 1;
      for (const frame of write(sent, { id: 1, body: { value } })) a.link.frame(frame, world.now);
    };
    for (let n = 0; n < 20; n += 1) send(); // what is taken does not count
    isSlow = true;
    for (let n = 0; n < most; n += 1) send();
    assert.ok(a.link.isOpen);
    send();
    assert.deepEqual([a.link.isOpen, a.link.way, a.link.faults], [false, "resuming", 0]);
  }
});
