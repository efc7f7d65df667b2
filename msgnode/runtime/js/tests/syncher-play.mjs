/** What the steps of a case of data objects do: runtimes share objects over a node that loses and lies. */

import assert from "node:assert/strict";
import { answerTo, errorBody } from "../src/messages.js";
import { settled } from "./fake-clock.mjs";
import { FakeNode, newStorage } from "./peers.mjs";

function isSame(found, expected) {
  try {
    assert.deepEqual(found, expected);
    return true;
  } catch {
    return false;
  }
}

const plain = (value) => JSON.parse(JSON.stringify(value));

/** The fields of a message, and of its body and value, that an expectation names. */
const like = (expected, { body = {}, ...head }) => {
  const flat = { ...body?.value, ...body, ...head };
  return Object.fromEntries(Object.keys(expected).map((key) => [key, flat[key] ?? null]));
};

/** The part of a path before its last name, and that name. */
function placeOf(data, path) {
  const names = path.split(".");
  return [names.slice(0, -1).reduce((part, name) => part[name], data), names.at(-1)];
}

const CHANGES = {
  set: ([part, name], value) => (part[name] = value),
  unset: ([part, name]) => delete part[name],
  push: ([part, name], value) => part[name].push(value),
  pop: ([part, name]) => part[name].pop(),
  reverse: ([part, name]) => part[name].reverse(),
};

export class Play {
  #node = new FakeNode();
  #peers = {}; // by name
  #synchers = {}; // by name, with their peer
  #objects = {};
  #copies = {};
  #seen = new Map(); // what a copy or an object has told: changes, children, statuses
  #storages = {};
  #begun = {};
  #asked = [];
  #decide = () => {};
  #invited = [];
  #held = [];

  /** @param retriesLate the next try of what failed for 9 s is too late */
  constructor({ retriesLate } = {}) {
    this.patience = retriesLate ? 5_000 : 300_000;
    for (const name of ["alice", "bob"]) this.peer(name);
  }

  /** "$bob" is Bob's hyperty, "$o" an object, "@bob" his runtime; {"$x": n} is a long text. */
  #named(value) {
    if (typeof value === "string")
      return value.replace(/([$@])([a-z]+)/g, (whole, sign, name) => {
        if (sign === "@") return this.#peers[name]?.url ?? whole;
        return this.#objects[name]?.url ?? this.#synchers[name]?.hyperty ?? whole;
      });
    if (Array.isArray(value)) return value.map((each) => this.#named(each));
    if (value === null || typeof value !== "object") return value;
    if (value.$x) return "x".repeat(value.$x);
    if (value.$many)
      return Object.fromEntries(Array.from({ length: value.$many }, (_, n) => [n, { value: n }]));
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, this.#named(each)]));
  }

  async steps(steps) {
    for (const step of steps) {
      try {
        await this.#act(step);
      } catch (error) {
        error.message = `${JSON.stringify(step).slice(0, 200)}: ${error.message}`;
        throw error;
      }
    }
  }

  #act([act, ...words]) {
    return this[act](...words.map((each) => this.#named(each)));
  }

  end_() {
    for (const peer of this.#node.peers) peer.close();
    assert.equal(this.#node.clock.timers, 0, "closed runtimes leave no timer");
  }

  // --- time -------------------------------------------------------------------------------------

  /** Let time pass until it is so, or for as long as the case may wait. */
  async #soon(found, expected) {
    await settled();
    for (let time = 0; time < this.patience && !isSame(found(), expected); time += 500)
      await this.#node.turn(500);
    assert.deepEqual(found(), expected);
  }

  settle = settled;

  /** "#" counts from 0, also behind digits and in texts. */
  async repeat(times, ...steps) {
    for (let n = 0; n < times; n += 1) {
      const text = JSON.stringify(steps)
        .replaceAll(/"(\d*)#"/g, `$1${n}`)
        .replaceAll("#", n);
      for (const step of JSON.parse(text)) await this.#act(step);
    }
  }

  wait = (milliseconds) => this.#node.turn(milliseconds);

  async tick() {
    await Promise.resolve();
    await Promise.resolve();
  }

  start(name, ...step) {
    const begun = { done: false, promise: this.#act(step) };
    const isDone = () => (begun.done = true);
    begun.promise.then(isDone, isDone);
    this.#begun[name] = begun;
  }

  async end(name) {
    const begun = this.#begun[name];
    await this.#soon(() => begun.done, true);
    await begun.promise;
  }

  async fails(code, ...step) {
    this.start("failing", ...step);
    await assert.rejects(this.end("failing"), (error) => error.code === code);
  }

  // --- who there is -----------------------------------------------------------------------------

  peer(name, storage) {
    const kept = storage && (this.#storages[storage] ??= newStorage());
    this.#peers[name] = this.#node.peer({ storage: kept });
    const { hyperty, syncher } = this.#peers[name];
    this.#synchers[name] = { hyperty, syncher, peer: this.#peers[name] };
  }

  syncher(name, of, hyperty) {
    const peer = this.#peers[of];
    this.#synchers[name] = { hyperty, peer, syncher: peer.newSyncher(hyperty) };
  }

  async close(name) {
    const { peers } = this.#node;
    this.#peers[name].closeParts();
    await settled();
    this.#peers[name].close();
    if (peers.at(-1) === this.#peers[name]) peers.pop(); // the next one has its addresses
  }

  /** Its runtime says nothing any more, and the node notices. */
  async kill(name) {
    this.#node.copies = () => 0;
    await this.close(name);
    await settled();
    this.pass();
    this.forget(name);
  }

  keep = (storage, as) =>
    void (this.#storages[as] = newStorage({ ...this.#storages[storage].kept }));
  leave = (name) => this.#synchers[name].syncher.close();

  async say(name, ...words) {
    for (const word of words) {
      this.#peers[name].say(word);
      await settled();
    }
  }

  /** A hyperty that never answers. */
  listen(name, of, hyperty) {
    const peer = this.#peers[of];
    this.#synchers[name] = { peer, hyperty };
    peer.bus.addListener(hyperty, () => {});
    this.#node.subscribers.set(hyperty, new Set([peer]));
  }

  clock(now) {
    const copies = this.#node.copies;
    this.#node.copies = (message) => {
      if (now !== "later" && message.body?.lastModified) message.body.lastModified = now;
      return copies(message);
    };
    return new Promise((resolve) => setTimeout(resolve, 5)); // changes are dated to the millisecond
  }

  // --- objects ----------------------------------------------------------------------------------

  #side(who) {
    return this.#objects[who] ?? this.#copies[who];
  }

  #watch(side) {
    const told = { changes: [], children: [], statuses: [] };
    this.#seen.set(side, told);
    side.onChange?.((change) => told.changes.push(change.value));
    side.onChild((event) => told.children.push([event.type, plain(event.value)]));
    side.onStatus?.((status) => told.statuses.push(status));
  }

  async create(who, data, options, as = "o") {
    this.#objects[as] = await this.#synchers[who].syncher.create(data, options);
    this.#watch(this.#objects[as]);
  }

  async subscribe(who, object = "o", as = who) {
    const url = this.#objects[object]?.url ?? object;
    this.#copies[as] = await this.#synchers[who].syncher.subscribe(url);
    this.#watch(this.#copies[as]);
  }

  async again(who, isOne) {
    const copy = await this.#synchers[who].syncher.subscribe(this.#objects.o.url);
    assert.equal(copy === this.#copies[who], isOne);
  }

  async resume(who, hyperty, criteria) {
    const syncher = this.#peers[who].newSyncher(hyperty);
    [this.#objects.o] = await syncher.resume(criteria);
  }

  async resumeNothing(who) {
    assert.deepEqual(await this.#synchers[who].syncher.resume(), []);
  }

  async resumeObservers(who, ...urls) {
    const copies = await this.#synchers[who].syncher.resumeObservers();
    assert.deepEqual(
      copies.map(({ url }) => url),
      urls,
    );
    [this.#copies[who]] = copies;
  }

  unsubscribe = (who) => this.#copies[who].unsubscribe();
  delete = (object = "o") => this.#objects[object].delete();
  add = (who, value, id) => this.#side(who).addChild(value, id);
  update = (who, id, value) => this.#side(who).updateChild(id, value);
  remove = (who, id) => this.#side(who).removeChild(id);

  #change(way, path, value) {
    CHANGES[way](placeOf(this.#objects.o.data, path), value);
  }

  set = (path, value) => this.#change("set", path, value);
  push = (path, value) => this.#change("push", path, value);
  fixed = (...change) => assert.throws(() => this.#change(...change), /has ended/);

  break(who) {
    this.#copies[who].onChange(() => {
      throw new Error("mine");
    });
  }

  // --- decisions --------------------------------------------------------------------------------

  #later() {
    return new Promise((resolve) => (this.#decide = resolve));
  }

  admit(verdict) {
    this.#asked = [];
    this.#objects.o.onSubscription((who) => {
      this.#asked.push(who);
      if (verdict === "not asserted") return who.isAsserted === false;
      return verdict === "later" ? this.#later() : verdict;
    });
  }

  judge(who, verdict) {
    return this.#synchers[who].syncher.onInvitation(async (invitation) => {
      this.#invited.push(invitation);
      return verdict === "later" ? this.#later() : (verdict ?? undefined);
    });
  }

  decide(verdict) {
    this.#decide(verdict);
  }

  async invite(who, code) {
    const { hyperty } = this.#synchers[who];
    this.start("invitation", "invited_", hyperty);
    await this.end("invitation");
    const codes = await this.#begun.invitation.promise;
    assert.deepEqual([...codes], [[hyperty, code]]);
  }

  invited_ = (hyperty) => this.#objects.o.invite(hyperty);
  invited = (_, expected) => assert.deepEqual(like(expected, this.#invited.at(-1)), expected);

  asked(...expected) {
    assert.deepEqual(
      this.#asked.map((each, n) => like(expected[n] ?? {}, each)),
      expected,
    );
  }

  async ask(who, code, type, to, body = {}, from = undefined) {
    const { peer, hyperty } = this.#synchers[who];
    const found = await peer.bus.request({ type, from: from ?? hyperty, to, body }).then(
      ({ code: told }) => told,
      (error) => error.code,
    );
    assert.equal(code ?? found, found);
  }

  // --- the node ---------------------------------------------------------------------------------

  #lose(matches, times, lost = () => {}) {
    let left = times;
    this.#node.copies = (message) => {
      if (left < 1 || !matches.some((each) => isSame(like(each, message), each))) return 1;
      left -= 1;
      lost(message);
      return 0;
    };
  }

  lose = (...matches) => this.#lose(matches, Infinity);
  loseOnce = (match) => this.#lose([match], 1);

  hold(match) {
    this.#held = [];
    this.#lose([match], Infinity, (message) => this.#held.push(message));
  }

  pass() {
    this.#node.copies = () => 1;
    delete this.#node.received;
  }

  deliver(who, ...numbers) {
    const { bus, stub } = this.#peers[who];
    for (const each of numbers) bus.postFrom(stub, this.#held[each]);
  }

  /** The node answers 403 to some of what a runtime sends. */
  refuse(who, match) {
    const { bus, stub } = this.#peers[who];
    this.#node.received = (peer, message) => {
      if (peer.stub === stub && isSame(like(match, message), match))
        bus.postFrom(stub, answerTo(message, errorBody(403, "It is forbidden.")));
      else FakeNode.prototype.received.call(this.#node, peer, message);
    };
  }

  /** Subscriptions are answered with another value. */
  lie(value) {
    delete this.#node.hand;
    const hand = this.#node.hand.bind(this.#node);
    if (value === null) return;
    this.#node.hand = (peer, message) => {
      const isAnswer = message.type === "response" && message.from.endsWith("/subscription");
      hand(peer, isAnswer ? { ...message, body: { code: 200, value } } : message);
    };
  }

  /** What a reporter's change number so much would be, with other fields. */
  tell(who, version, change, { via, ...head } = {}) {
    const { bus, stub } = this.#peers[who];
    const { url } = this.#objects.o;
    const body = { version, ...(change ?? { attribute: "title", value: `t${version}` }) };
    const message = { id: 1000, type: "update", from: url, to: `${url}/changes`, ...head, body };
    bus.postFrom(via ?? stub, message);
  }

  forget(who, address) {
    for (const [each, all] of this.#node.subscribers)
      if (!address || address === each) all.delete(this.#peers[who]);
  }

  forgetAll() {
    this.#node.subscribers.clear();
  }

  // --- what is so, at once ----------------------------------------------------------------------

  begins = (who, text) => assert.ok(this.#side(who).url.startsWith(text), this.#side(who).url);
  changes = (who, ...values) =>
    assert.deepEqual(plain(this.#seen.get(this.#copies[who]).changes), values);
  told = (who, ...events) => assert.deepEqual(this.#seen.get(this.#side(who)).children, events);
  ids = (who, ...ids) =>
    assert.deepEqual(
      this.#side(who).children.map(({ id }) => id),
      ids,
    );
  children = (who, ...found) =>
    assert.deepEqual(
      this.#side(who).children.map(({ value, source }) => [plain(value), source]),
      found,
    );
  sameChildren = (who) => assert.deepEqual(this.#copies[who].children, this.#objects.o.children);
  counter = (who, name, count) => assert.equal(this.#peers[who].bus.counters[name], count);
  listening = (who, address, count) =>
    assert.equal(this.#peers[who].bus.listenersOf(address).length, count);
  stored = (name, kept) => assert.deepEqual(this.#storages[name].kept, kept);
  unheard = (url) => assert.ok(!JSON.stringify(this.#node.seen).includes(url));
  silent = () => assert.deepEqual(this.#node.seen, []);

  quiet() {
    this.#node.seen.length = 0;
  }

  subscribers(address, ...names) {
    const found = [...(this.#node.subscribers.get(address) ?? [])];
    assert.deepEqual(
      found,
      names.map((each) => this.#peers[each]),
    );
  }

  sent(type, to, ...expected) {
    const found = this.#node.sent(type, to).slice(-expected.length);
    assert.deepEqual(
      found.map((message, n) => like(expected[n], message)),
      expected,
    );
  }

  times(type, to, least, most) {
    const { length } = this.#node.sent(type, to);
    assert.ok(least <= length && length <= most, `${length} times`);
  }

  parts(who, least) {
    const { hyperty } = this.#synchers[who];
    const isPart = ({ type, from, to }) =>
      type === "response" && from === this.#objects.o.url && to === hyperty;
    const [{ body }, ...more] = this.#node.seen.filter(isPart);
    assert.deepEqual([body.code, body.value.responses], [100, more.length + 1]);
    assert.ok(more.length + 1 >= least);
  }

  // --- what is so, soon -------------------------------------------------------------------------

  data = (who, expected) => this.#soon(() => plain(this.#side(who).data), expected);
  version = (who, expected) => this.#soon(() => this.#side(who).version, expected);
  status = (who, expected) => this.#soon(() => this.#copies[who].status, expected);
  statuses = (who, ...all) => this.#soon(() => this.#seen.get(this.#copies[who]).statuses, all);
  addresses = (...all) => this.#soon(() => [...this.#node.subscribers.keys()].sort(), all.sort());
  observers = (...names) =>
    this.#soon(
      () => this.#objects.o.observers,
      names.map((each) => this.#synchers[each].hyperty),
    );
  faults = (who, ...reasons) =>
    this.#soon(() => [...new Set(this.#peers[who].errors.map(({ reason }) => reason))], reasons);

  async same(who) {
    const { o } = this.#objects;
    const copy = this.#copies[who];
    const found = () => [plain(copy.data), copy.version];
    await this.#soon(found, [plain(o.data), o.version]);
  }
}
