/** P2P connections without a network; the numbers of cases are those of docs/reference/p2p.md. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { BadFrame, join, read, write } from "../src/p2p/frames.js";
import { KnownRuntimes } from "../src/p2p/remote-runtime.js";
import { Link } from "../src/p2p/link.js";
import { isForNode } from "../src/p2p/senders.js";
import { TIMERS } from "../src/p2p/settings.js";
import {
  HANDLER,
  Invitations,
  NO_RETURN,
  Quarantine,
  REQUESTER,
  Redials,
  after,
  runtimeOfHandler,
  statusOf,
  staysRequester,
} from "../src/p2p/states.js";
import { World, randomOf } from "./p2p-world.mjs";

/** What the Python parts answer; written by p2p_vectors.py among their tests. */
const VECTORS = globalThis.process
  ? JSON.parse(
      (await import("node:fs")).readFileSync(new URL("p2p-vectors.json", import.meta.url), "utf8"),
    )
  : await (await fetch("/tests/p2p-vectors.json")).json();

// --- vectors: both languages answer alike -----------------------------------------------------------

test("each event leads from each state where the tables of both languages say", () => {
  for (const [name, table] of [
    ["requester", REQUESTER],
    ["handler", HANDLER],
  ]) {
    assert.ok(VECTORS.tables[name].length > 90);
    for (const [state, event, next] of VECTORS.tables[name])
      assert.equal(after(table, state, event), next, `${name}: ${state} ${event}`);
  }
  assert.deepEqual([...NO_RETURN].sort(), VECTORS.noReturn);
});

test("P59 the words on the wire", () => {
  for (const [word, state] of VECTORS.statuses) assert.equal(statusOf(word), state, word);
  for (const word of [null, ["live"], 1, undefined]) assert.equal(statusOf(word), null);
});

test("P26 who stays requester, and whose handler it is", () => {
  for (const [own, other, stays] of VECTORS.staysRequester)
    assert.equal(staysRequester(own, other), stays, `${own} ${other}`);
  for (const [handler, runtime] of VECTORS.runtimeOfHandler)
    assert.equal(runtimeOfHandler(handler), runtime, handler);
});

test("P20 P33 how long a runtime is left alone, and when it is dialled again", () => {
  const [quarantine, redials] = [new Quarantine(), new Redials()];
  assert.deepEqual(
    VECTORS.quarantine.map(() => quarantine.failed("b", 0)),
    VECTORS.quarantine,
  );
  quarantine.lift("b");
  assert.equal(quarantine.until("b"), 0);
  for (const [now, jitter, delay] of VECTORS.redials)
    assert.equal(redials.next(now, jitter), delay, `${now}`);
});

test("P58 the eleventh invitation and the thirty-third connection are too many", () => {
  const invitations = new Invitations();
  const answers = Array.from({ length: 11 }, () => invitations.isTooMany("a", 0, 1000));
  assert.deepEqual(answers, [...Array(10).fill(false), true]);
  assert.equal(invitations.isTooMany("b", 31, 1000), false);
  assert.equal(invitations.isTooMany("b", 32, 1000), true);
  assert.equal(invitations.isTooMany("a", 0, 62_000), false);
});

test("P40 P42 what takes no channel", () => {
  for (const [message, expected] of VECTORS.isForNode)
    assert.equal(isForNode(message), expected, JSON.stringify(message));
});

test("P46 frames are read alike", () => {
  for (const [text, expected] of VECTORS.frames) {
    if (expected === null) assert.throws(() => read(text), BadFrame);
    else assert.deepEqual(read(text), expected, text);
  }
  for (const hostile of [new ArrayBuffer(8), null, undefined, "[".repeat(5000)])
    assert.throws(() => read(hostile), BadFrame);
});

test("P44 frames are written alike", () => {
  for (const { length, heads, sizes } of VECTORS.written) {
    const found = write(7, { id: 1, text: "ä".repeat(length) }, 3).map((each) => JSON.parse(each));
    assert.deepEqual(
      found.map(({ uuid, seq, ack = null, part = null }) => ({ uuid, seq, ack, part })),
      heads,
    );
    assert.deepEqual(
      found.map(({ text = "" }) => text.length),
      sizes,
    );
  }
});

/** A frame without what differs from one run to the next. */
const plain = (text) =>
  text
    .replace(/"sendingTime":\d+/, '"sendingTime":0')
    .replace(/^\{"(ping|pong)":\d+\}$/, '{"$1":0}');

/** An outlet that says what the vectors say that it said, and keeps what it is told. */
function replayed(expected) {
  const done = [];
  const said =
    (name, result = () => undefined) =>
    (...words) => {
      const answer = result(expected()?.[done.length]);
      done.push([name, ...words, ...(answer === undefined ? [] : [answer])]);
      return answer;
    };
  const outlet = {
    toChannel: (frame) => said("toChannel")(plain(frame)),
    hasRoom: said("hasRoom", (what) => what?.[1] ?? true),
    toNode: ({ id }) => said("toNode")(id),
    ask: said("ask"),
    take: ({ id }) => said("take", (what) => what?.[2] ?? true)(id),
    refuse: ({ id }, code) => said("refuse")(id, code),
    close: said("close"),
  };
  return { outlet, done };
}

for (const { name, steps } of VECTORS.links) {
  test(`links do the same, step by step: ${name}`, () => {
    let at = -1;
    const { outlet, done } = replayed(() => steps[at]?.does);
    const link = new Link(outlet);
    for (const step of steps) {
      at += 1;
      const given = link[step.call](...step.with);
      assert.deepEqual(done.splice(0), step.does, `step ${at}: ${step.call}`);
      if ("gives" in step) assert.equal(given, step.gives);
    }
  });
}

// --- order and number over node and channel ---------------------------------------------------------

class Talk {
  said = [0, 0];

  constructor(world) {
    this.world = world;
  }

  say(which, count = 1) {
    for (let n = 0; n < count; n += 1) this.world.sides[which].say((this.said[which] += 1) - 1);
  }

  allArrived() {
    this.world.settle();
    for (const which of [0, 1]) {
      const { arrived, refused } = this.world.sides[which];
      assert.deepEqual(
        arrived,
        Array.from({ length: this.said[1 - which] }, (_, n) => n),
      );
      assert.deepEqual(refused, []);
    }
  }
}

/** Two sides whose channel is in use in both directions. */
function live(seed = 1, timers = {}) {
  const world = new World(seed, timers);
  assert.ok(world.open());
  world.settle();
  assert.deepEqual(
    world.sides.map(({ link }) => link.way),
    ["channel", "channel"],
  );
  return new Talk(world);
}

test("P31 P32 P33 whatever the channel does, each message arrives once and in order", () => {
  let [resent, byChannel] = [0, 0];
  for (let seed = 0; seed < 150; seed += 1) {
    const [world, random] = [new World(seed), randomOf(seed + 1000)];
    const talk = new Talk(world);
    world.b.isSlow = seed % 2 === 1;
    const below = (most) => Math.floor(random() * most);
    const end = [
      () => world.cut(),
      () => world.close(),
      () => world.sides[below(2)].link.bye("closing", world.now),
      () => world.sides.forEach(({ channel }) => channel.length && channel.unshift(channel[0])),
      () => world.sides.forEach(({ channel }) => channel.reverse()),
      () => {
        while (world.stepNode()); // a node that takes longer than a resume may loses what it says
        world.tick();
      },
    ];
    for (let round = below(6); round > 0; round -= 1) {
      talk.say(below(2), below(50));
      world.open();
      for (let steps = below(150); steps > 0; steps -= 1) world.step();
      for (const which of [0, 1]) talk.say(which, below(50));
      for (let steps = below(150); steps > 0; steps -= 1) world.step();
      end[below(end.length)]();
      talk.say(below(2), below(50));
      for (let steps = below(50); steps > 0; steps -= 1) world.step();
      end[below(end.length)]();
    }
    talk.allArrived();
    resent += world.a.link.resent + world.b.link.resent;
    byChannel += world.a.by.channel + world.b.by.channel;
  }
  assert.ok(resent > 500 && byChannel > 2500, `${resent} ${byChannel}`);
});

test("P30 ten thousand while the channel opens go both ways, in order", () => {
  const world = new World(3);
  const talk = new Talk(world);
  for (let n = 0; n < 10_000; n += 1) {
    talk.say(0);
    if (n === 2000) world.open();
    if (n % 3) world.step();
  }
  talk.allArrived();
  assert.ok(world.b.by.node > 100 && world.b.by.channel > 100);
});

test("P33 twenty channels, one after the other, leave nothing behind", () => {
  const talk = new Talk(new World(9));
  for (let n = 0; n < 20; n += 1) {
    for (const which of [0, 1]) talk.say(which, 20);
    talk.world.settle();
    assert.ok(talk.world.open());
    talk.say(0, 20);
    for (let steps = 0; steps < 60; steps += 1) talk.world.step();
    talk.world.close();
  }
  talk.allArrived();
  assert.equal(talk.world.epochs, 20);
  assert.ok(talk.world.a.link.endedEpochs <= TIMERS.keepEpochs);
});

test("P34 without an answer to the fence nothing is held longer than three seconds", () => {
  const world = new World(1);
  world.open();
  world.cut();
  new Talk(world).say(0, 5);
  while (world.a.link.way !== "node") assert.ok(world.stepNode() || world.tick());
  assert.ok(world.now <= TIMERS.fence);
  while (world.stepNode());
  assert.deepEqual(world.b.arrived, [0, 1, 2, 3, 4]);
});

test("P35 what finds no room is refused and the rest keeps its order", () => {
  const world = new World(1, { heldSize: 1000 });
  world.open();
  new Talk(world).say(0, 12);
  assert.deepEqual(world.a.refused, [
    [10, 503],
    [11, 503],
  ]);
  world.settle();
  assert.deepEqual(world.b.arrived, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test("what went through the node to an address is not overtaken once that is at the peer", () => {
  for (let seed = 0; seed < 30; seed += 1) {
    const world = new World(seed);
    world.open();
    world.settle();
    const { a, b } = world;
    a.say(0);
    a.sayByNode(100, "x");
    for (let steps = 0; steps < seed % 3; steps += 1) world.step();
    a.link.fenceAgain("x", world.now);
    for (const id of [101, 102, 103]) a.say(id, 100, "x");
    a.say(1);
    while (world.stepChannel()); // which is faster than the node
    assert.deepEqual(
      b.arrived.filter((id) => id > 100),
      [],
    );
    world.settle();
    assert.deepEqual(
      b.arrived.filter((id) => id >= 100),
      [100, 101, 102, 103],
    );
    assert.deepEqual(
      b.arrived.filter((id) => id < 100),
      [0, 1],
    );
    assert.equal(b.by.node, 1);
    assert.equal(a.link.way, "channel");
  }
});

test("an address stays with the node where its fence is not answered, and the channel goes on", () => {
  const world = new World(1);
  world.open();
  world.settle();
  const { a, b } = world;
  a.sayByNode(100, "x");
  a.link.fenceAgain("x", world.now);
  a.say(101, 100, "x");
  a.say(0);
  const held = a.node; // the other side is away from its node
  a.node = [];
  while (a.link.way !== "channel") assert.ok(world.stepChannel() || world.tick());
  assert.ok(world.now <= 2 * TIMERS.fence);
  a.say(102, 100, "x");
  a.link.fenceAgain("x", world.now);
  a.say(1);
  while (world.stepChannel());
  assert.deepEqual(b.arrived, [0, 1]);
  a.node = [...held, ...a.node];
  world.settle();
  assert.deepEqual(b.arrived, [0, 1, 100, 101, 102]);
  assert.deepEqual(b.by, { node: 3, channel: 2 });
  a.link.bye("closing", world.now);
  world.settle();
  assert.ok(world.open());
  world.settle();
  a.say(103, 100, "x");
  world.settle();
  assert.deepEqual(b.by, { node: 3, channel: 3 });
});

test("a fence for an address takes the place of the first one", () => {
  const world = new World(1);
  world.open();
  const { a, b } = world;
  a.say(0, 100, "y");
  a.sayByNode(100, "x");
  a.link.fenceAgain("x", world.now);
  a.say(101, 100, "x");
  world.settle();
  assert.deepEqual(
    [...b.arrived].sort((one, other) => one - other),
    [0, 100, 101],
  );
  assert.ok(b.arrived.indexOf(100) < b.arrived.indexOf(101));
  assert.deepEqual(b.by, { node: 1, channel: 2 });
});

test("P37 an answer that the node awaits waits for its turn and goes there", () => {
  const world = new World(1);
  world.open();
  world.a.say(0);
  world.a.link.send({ id: 1, type: "response" }, 10, world.now, true);
  world.a.say(2);
  world.settle();
  assert.deepEqual([...world.b.arrived].sort(), [0, 1, 2]);
  assert.deepEqual(world.b.by, { node: 1, channel: 2 });
});

test("P38 who no longer knows the epoch gets nothing twice, and what was lost is said", () => {
  const { world, ...talk } = live();
  for (let n = 0; n < 20; n += 1) world.a.say(n);
  for (let n = 0; n < 10; n += 1) world.step();
  world.cut();
  world.b.link = new Link(world.b); // the other runtime has started again
  for (let n = 20; n < 25; n += 1) world.a.say(n);
  world.settle();
  const lost = world.a.refused.map(([id]) => id);
  assert.ok(lost.length > 0 && world.a.refused.every(([, code]) => code === 503));
  assert.equal(new Set(world.b.arrived).size, world.b.arrived.length);
  assert.equal(new Set([...lost, ...world.b.arrived]).size, 25, JSON.stringify(talk));
});

test("P44 a message of any length arrives whole, and the next one behind it", () => {
  for (const length of [100, 16_384, 16_385, 262_145, 1024 * 1024 - 100]) {
    const { world } = live();
    const taken = [];
    const take = world.b.take.bind(world.b);
    world.b.take = (message) => (taken.push(message), take(message));
    const text = "ü🙂".repeat(length).slice(0, length);
    world.a.link.send({ id: 0, type: "create", text }, length, 0);
    world.a.link.send({ id: 1, type: "create" }, 10, 0);
    world.settle();
    assert.deepEqual(
      taken.map(({ id }) => id),
      [0, 1],
    );
    assert.equal(taken[0].text, text);
  }
  assert.throws(() => join(["[", "]"]), BadFrame);
});

test("P46 the tenth frame that cannot be read ends the channel, and so does a skipped number; nothing is lost", () => {
  for (const text of ["", "{}", '{"data":{"textMessage":{}},"seq":0}', new ArrayBuffer(4)]) {
    const talk = live();
    const { link } = talk.world.b;
    for (let n = 0; n < 9; n += 1) link.frame(text, talk.world.now);
    assert.deepEqual([link.isOpen, link.faults], [true, 9]);
    link.frame(text, talk.world.now);
    assert.equal(link.isOpen, false);
    talk.say(0, 10);
    talk.allArrived();
  }
  const talk = live();
  talk.world.b.link.frame('{"seq":3,"data":{"textMessage":{"id":9}}}', talk.world.now);
  assert.equal(talk.world.b.link.isOpen, false);
  talk.say(0, 10);
  talk.allArrived();
});

test("P54 P55 silence is noticed in twelve seconds, pings keep a channel alive, an unused one says bye", () => {
  const { world } = live();
  for (let n = 0; n < 200; n += 1) assert.ok(world.step() || world.tick());
  assert.ok(world.a.link.isOpen && world.now > 60_000);
  world.cut();
  const began = world.now;
  while (world.a.link.isOpen) assert.ok(world.step() || world.tick());
  assert.ok(world.now - began <= TIMERS.dead);
  const idle = live(1, { idle: 30_000 }).world;
  while (idle.a.link.isOpen || idle.b.link.isOpen) assert.ok(idle.step() || idle.tick());
  assert.ok(idle.now >= 30_000 && idle.now < 40_000);
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

test("an ack of what was never sent counts as one of all that was", () => {
  for (const ack of [1, 7, 1e9, Number.MAX_SAFE_INTEGER]) {
    const talk = live();
    talk.say(0, 3);
    talk.world.a.link.frame(JSON.stringify({ ack }), talk.world.now);
    assert.equal(talk.world.a.link.unacknowledged, Math.max(0, 3 - ack));
    talk.say(0, 3);
    talk.allArrived();
  }
});

test("a resume with any count ends the wait, and no message goes twice to the node", () => {
  for (const received of [0, 2, 1e12]) {
    const { world, ...talk } = live();
    for (let n = 0; n < 5; n += 1) world.a.say(n);
    world.cut();
    assert.notEqual(world.a.link.resumeAsked(world.a.link.epoch, received), null);
    const count = Math.max(0, 5 - received);
    assert.deepEqual(
      [world.a.link.way, world.a.link.unacknowledged, world.a.node.length],
      ["node", 0, count],
    );
    world.a.link.resumeAsked(world.a.link.epoch, 0);
    assert.equal(world.a.node.length, count, JSON.stringify(talk));
  }
});

test("pings without end do not keep an unused channel", () => {
  const { world } = live(1, { idle: 30_000 });
  const { link } = world.a;
  for (let second = 0; second < 40; second += 1) {
    world.now += 1_000;
    link.frame('{"ping":1}', world.now);
    link.tick(world.now);
    assert.equal(link.isOpen, second < 29, `${second}`);
  }
});

test("an epoch that comes again is a new channel", () => {
  const talk = live();
  const { epoch } = talk.world.a.link;
  talk.say(0);
  talk.world.settle();
  talk.world.close();
  talk.world.settle();
  talk.world.epochs -= 1; // the other side names the old one
  assert.ok(talk.world.open());
  assert.equal(talk.world.a.link.epoch, epoch);
  talk.say(0, 40);
  talk.world.settle();
  talk.world.cut();
  talk.say(0);
  talk.allArrived();
});

test("failures of ten thousand runtimes are remembered and no more", () => {
  const quarantine = new Quarantine();
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
  for (let n = 0; n < 4; n += 1) a.say(n);
  a.hasRoom = () => true;
  a.toChannel = () => (sent += 1) === 2 && a.link.lost("closed", world.now);
  a.link.pump(world.now);
  for (const name of ["hasRoom", "toChannel"]) delete a[name];
  world.settle();
  assert.ok(world.open());
  for (let n = 4; n < 8; n += 1) a.say(n);
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
