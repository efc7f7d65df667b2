/** P2P connections without a network: the cases that both languages share, and what is JavaScript's alone. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { BadFrame, join, read, write } from "../src/p2p/frames.js";
import { KnownRuntimes } from "../src/p2p/remote-runtime.js";
import { isForNode } from "../src/p2p/senders.js";
import { TIMERS } from "../src/p2p/settings.js";
import * as states from "../src/p2p/states.js";
import { World, play, talk } from "./p2p-world.mjs";
import { cases } from "./p2p-cases.mjs";

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

for (const { of, name, rows, ...given } of await cases()) {
  if (rows)
    test(`${name}: ${of}`, () => {
      for (const row of rows)
        assert.deepEqual(ROWS[of](...row.slice(0, -1)), row.at(-1), JSON.stringify(row));
    });
  if (of === "link") test(name, () => play(given));
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

// --- who is known -----------------------------------------------------------------------------------

class Other {
  stubs = new Set();
  usedAt = 0;
  link = { epoch: "" };
  needed = false;

  constructor(number) {
    this.runtime = `hyperty-runtime://d/${number}`;
    this.via = `runtime://d/p2prequester/${number}`;
  }

  get isBusy() {
    return this.link.isOpen;
  }

  isNeeded() {
    return this.needed;
  }

  forget() {}
}

test("ten thousand come and go: the bound holds, who is needed stays, and others' stubs are theirs", () => {
  let gone = 0;
  const known = new KnownRuntimes({ ...TIMERS, peers: 50 });
  const kept = new Other(0);
  kept.needed = true;
  assert.ok(known.add(kept, 0));
  for (let n = 1; n <= 10_000; n += 1) {
    const other = new Other(n);
    other.forget = () => (gone += 1);
    assert.ok(known.add(other, n));
    for (let stub = 0; stub < 8; stub += 1) assert.ok(known.signals(other, `${n} ${stub}`));
    assert.ok(known.size <= 50 && other.stubs.size <= TIMERS.keepEpochs + 1);
  }
  assert.equal(gone, 10_001 - 50);
  assert.equal(known.of("runtime://d/0"), kept);
  assert.equal(known.ofStub("9999 7"), known.of("runtime://d/9999"));
  assert.equal(known.signals(kept, "9999 7"), false);
  assert.equal(known.ofStub("1 7"), undefined);
  for (const each of known) each.link.epoch = "1";
  assert.equal(known.add(new Other(20_000), 10_001), false);
  known.forgetUnused(10_000 + TIMERS.forget);
  assert.deepEqual([...known], [kept]);
});

test("P29 two tabs of one runtime URL: who names a handler gets the tab that has it, or none", () => {
  const known = new KnownRuntimes({ ...TIMERS, peers: 50 });
  const tab = (handler, instance) => {
    const peer = Object.assign(new Other(1), { handler, instance });
    peer.via += handler;
    return peer;
  };
  const [first, second] = [tab("h1", "i1"), tab("h2", "i2")];
  known.add(first, 0);
  assert.equal(known.of("runtime://d/1", "h1"), first);
  assert.equal(known.of("runtime://d/1", "h2"), undefined);
  assert.equal(known.toDial("runtime://d/1", "h2"), first); // not in use: it has started again
  first.link.isOpen = true;
  assert.equal(known.toDial("runtime://d/1", "h2"), undefined);
  known.add(second, 1);
  assert.equal(known.of("runtime://d/1"), second); // what names none goes to the one that came last
  assert.equal(known.of("hyperty-runtime://d/1", "h1"), first);
  assert.equal(known.of("runtime://d/1", "h2"), second);
  second.link.isOpen = true;
  assert.equal(known.instance("runtime://d/1", "i1", "h1"), first);
  assert.equal(known.size, 2);
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
