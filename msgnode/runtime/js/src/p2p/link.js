/**
 * The way of messages to one other runtime: the node or a channel, in order and exactly once. Pure: time is passed in,
 * and `due()` is when `tick()` is needed next.
 *
 *     node  ──channel opens──►  fencing  ──fenceAck──►  channel  ──lost──►  resuming  ──►  node
 *                                  └──no answer──►  node, tried once more
 *
 * It follows docs/reference/p2p.md, rows 1-8.
 */

import { BYES, BadFrame, Transfer, join, read, sign, write } from "./frames.js";
import { TIMERS } from "./settings.js";

export const MAX_FAULTS = 10; // frames in a row that cannot be read
const ACK_EVERY = 32; // messages
const FENCE_TRIES = 2; // of the first one, for one channel

/** Items with a `size`, oldest first, bounded in number and in size; the oldest is taken in constant time. */
export class SizedQueue {
  #most;
  #mostSize;
  #items = [];
  #first = 0;
  #size = 0;

  constructor(mostSize, most = Infinity) {
    [this.#mostSize, this.#most] = [mostSize, most];
  }

  get length() {
    return this.#items.length - this.#first;
  }

  /** The oldest item; undefined if there is none. */
  get first() {
    return this.#items[this.#first];
  }

  /** Whether there is room for this one besides. */
  hasRoomFor({ size }) {
    return this.length < this.#most && this.#size + size <= this.#mostSize;
  }

  /** Whether there is more than there may be. */
  get isOverfull() {
    return this.length > this.#most || this.#size > this.#mostSize;
  }

  push(item) {
    this.#items.push(item);
    this.#size += item.size;
  }

  /** Take the oldest item out. */
  shift() {
    const item = this.first;
    this.#items[this.#first] = undefined;
    this.#first += 1;
    this.#size -= item.size;
    if (this.#first * 2 > this.#items.length)
      (this.#items.splice(0, this.#first), (this.#first = 0));
    return item;
  }

  /** Take out what is older than the first item of which this is true, and that one; nothing if there is none. */
  dropThrough(isLast) {
    const last = this.#items.findIndex((item) => item && isLast(item));
    for (let count = last + 1 - this.#first; last >= 0 && count > 0; count -= 1) this.shift();
  }

  /** Take everything out, the oldest first. */
  takeAll() {
    const all = this.#items.slice(this.#first);
    [this.#items, this.#first, this.#size] = [[], 0, 0];
    return all;
  }
}

/** What came on a channel and waits for a check. */
export class Inbox {
  #outlet;
  #items;

  constructor(outlet, { inbox, inboxSize }) {
    this.#outlet = outlet;
    this.#items = new SizedQueue(inboxSize, inbox);
  }

  get length() {
    return this.#items.length;
  }

  /** Take an item {message, size}; whether no more waits than the other side may have under way. */
  add(item) {
    this.#items.push(item);
    return !this.#items.isOverfull;
  }

  /** Deliver what came, as far as it can be decided; calls `delivered` with each item. */
  deliver(delivered = () => {}) {
    for (let item = this.#items.first; item; item = this.#items.first) {
      if (!this.#outlet.take(item.message) || this.#items.first !== item) return; // delivering it may end the channel
      delivered(this.#items.shift());
    }
  }

  clear() {
    this.#items.takeAll();
  }
}

/** What comes on a channel: numbered, put together from pieces, delivered in order. */
class Incoming {
  received = 0; // the last message that was delivered here
  told = 0; // the last one that was acknowledged
  faults = 0;
  #outlet;
  #inbox; // of {seq, message, size}
  #seen = 0;
  #begunSize = 0; // of the message that is coming
  #pieces = [];
  #content = null; // {begun, transfer} of it

  constructor(outlet, timers) {
    this.#outlet = outlet;
    this.#inbox = new Inbox(outlet, timers);
  }

  /** A new channel: numbers start again. */
  begin() {
    this.received = this.told = this.#seen = 0;
    this.drop();
  }

  /** Take nothing more of what came and was not delivered. */
  drop() {
    this.#inbox.clear();
    this.#pieces = [];
    this.#content = null;
  }

  hasWaiting() {
    return this.#inbox.length > 0;
  }

  /** Take a frame of so many characters. Returns false if the channel has to end. Throws BadFrame. */
  add(frame, size) {
    if (this.#content) return this.#fault(false); // a content comes in one go
    if (frame.seq !== this.#seen + 1) return this.#fault(frame.seq <= this.#seen);
    if (frame.kind === "data") return this.#arrived(frame.seq, frame.message, size);
    if (frame.kind === "begun") {
      this.#begunSize = size + frame.size;
      this.#content = { begun: frame, transfer: new Transfer(frame) };
      return true;
    }
    if (frame.index !== this.#pieces.length) return this.#fault(frame.index < this.#pieces.length);
    this.#begunSize = frame.index ? this.#begunSize + size : size;
    this.#pieces.push(frame.text);
    if (this.#pieces.length < frame.count) return true;
    const pieces = this.#pieces.splice(0);
    return this.#arrived(frame.seq, join(pieces), this.#begunSize);
  }

  /** Take a piece of a content. Returns false if the channel has to end. Throws BadFrame. */
  addContent(frame) {
    const { begun, transfer } = this.#content ?? {};
    if (begun?.uuid !== frame.uuid) throw new BadFrame("No content of this uuid is under way.");
    if (transfer.add(frame)) {
      this.#content = null;
      return this.#arrived(begun.seq, transfer.message(), this.#begunSize);
    }
    const progress = transfer.progress();
    if (progress) this.#outlet.take(progress);
    return true;
  }

  /** Deliver what came, as far as it can be decided. */
  deliver() {
    this.#inbox.deliver(({ seq }) => (this.received = seq));
  }

  #fault(isGood) {
    this.faults += 1;
    return isGood;
  }

  #arrived(seq, message, size) {
    this.#seen = seq;
    this.#pieces = [];
    return this.#inbox.add({ seq, message, size });
  }
}

/** The fences of one channel: their numbers, and what became of them. */
class Fences {
  hasPassed = false;
  #number = 0;
  #failures = 0;
  #early = { epoch: "", k: 0 }; // one that came before its channel was open here
  #waiting = new Set(); // addresses
  #atNode = new Set();

  /** There is a new channel, with the first fence to come. */
  opened() {
    this.hasPassed = false;
    this.#failures = 0;
    this.#waiting.clear();
    this.#atNode.clear();
  }

  /** The number of a fence that takes the place of those before. */
  next() {
    return (this.#number += 1);
  }

  isCurrent(number) {
    return number === this.#number;
  }

  /** Another fence is for this address too; false if it stays with the node anyway. */
  add(address) {
    if (this.#atNode.has(address)) return false;
    this.#waiting.add(address);
    return true;
  }

  /** The last one was answered, behind all that went before it. */
  passed() {
    this.hasPassed = true;
    this.#waiting.clear();
  }

  /** The last one was not answered; whether the first is to be tried again. */
  failed() {
    if (this.hasPassed) for (const address of this.#waiting) this.#atNode.add(address);
    else this.#failures += 1;
    this.#waiting.clear();
    return this.#failures < FENCE_TRIES;
  }

  /** Whether a message stays with the node, for the sake of those before it. */
  isAtNode({ to, type }) {
    return this.#atNode.has(to) && type !== "response";
  }

  /** One came through the node whose channel is not open here yet; true. */
  cameEarly(epoch, k) {
    this.#early = { epoch, k };
    return true;
  }

  /** The number of the one that came before this channel was open; null for none. */
  early(epoch) {
    return this.#early.epoch === epoch ? this.#early.k : null;
  }
}

/** Both directions to one other runtime, over all epochs of their channel. */
export class Link {
  isField = false;
  /** "node", "fencing", "channel" or "resuming". */
  way = "node";
  epoch = "";
  isOpen = false;
  resent = 0;
  #outlet;
  #timers;
  #incoming;
  #bad = 0;
  #badInARow = 0;
  #due = new Map(); // name -> when
  #held; // {message, size, isForNode, seq}
  #window;
  #frames = []; // pieces that wait for room in the channel
  #sent = 0;
  #fences = new Fences();
  #ended = new Map(); // epoch -> received
  #onDue = {
    ack: () => this.#outlet.toChannel(sign("ack", this.#ridingAck())),
    ping: (now) => {
      this.#due.set("ping", now + this.#timers.ping);
      this.#outlet.toChannel(sign("ping", Math.trunc(now)));
    },
    dead: (now) => this.lost("silent", now),
    idle: (now) => this.bye("idle", now),
    fence: (now) => this.#fenceFailed(now),
    refence: (now) => this.#beginFence(now),
    resume: () => this.#giveUp(),
  };

  /** @param outlet {toChannel(frame), hasRoom(), toNode(message), ask(method, params), take(message) -> false if it
   *   cannot be decided yet, refuse(message, code, text), close(reason)} */
  constructor(outlet, timers = TIMERS) {
    this.#outlet = outlet;
    this.#timers = timers;
    this.#incoming = new Incoming(outlet, timers);
    this.#held = new SizedQueue(timers.heldSize);
    this.#window = new SizedQueue(timers.windowSize, timers.window);
  }

  /** Frames that could not be read or came out of turn. */
  get faults() {
    return this.#bad + this.#incoming.faults;
  }

  /** Epochs that a late resume can still ask for. */
  get endedEpochs() {
    return this.#ended.size;
  }

  /** Messages that were sent and are not acknowledged. */
  get unacknowledged() {
    return this.#window.length;
  }

  /** Whether something came that waits for a check. */
  hasWaiting() {
    return this.#incoming.hasWaiting();
  }

  /** Whether nothing waits: all that was sent has arrived, all that came was delivered. */
  isQuiet() {
    const waits =
      this.#held.length ||
      this.#window.length ||
      this.#frames.length ||
      this.#incoming.hasWaiting();
    return !waits && (this.way === "node" || this.way === "channel");
  }

  // --- sending ------------------------------------------------------------------------------------

  /** Send a message of about `size` characters in its turn; `isForNode`: through the node, as its request came. */
  send(message, size, now, isForNode = false) {
    const isByNode = isForNode || this.#fences.isAtNode(message);
    if (this.way === "node" || (isByNode && this.way === "channel" && !this.#held.length)) {
      this.#outlet.toNode(message);
      return;
    }
    const item = { message, size, isForNode, seq: 0 };
    if (!this.#held.hasRoomFor(item)) {
      this.#outlet.refuse(message, 503, "Too many messages wait for their way.");
      return;
    }
    this.#held.push(item);
    this.pump(now);
  }

  /** Send what the channel and the window have room for. */
  pump(now) {
    while (this.way === "channel") {
      while (this.#frames.length && this.#outlet.hasRoom())
        this.#outlet.toChannel(this.#frames.shift());
      const item = this.#held.first;
      if (!this.isOpen || this.#frames.length || !item) return; // a frame that the channel does not take ends it
      const isForNode = item.isForNode || this.#fences.isAtNode(item.message);
      if (!isForNode && this.#window.length && !this.#window.hasRoomFor(item)) return;
      this.#held.shift();
      if (isForNode) {
        this.#outlet.toNode(item.message);
        continue;
      }
      item.seq = this.#sent += 1;
      this.#window.push(item);
      this.#due.set("idle", now + this.#timers.idle);
      this.#frames.push(...write(item.seq, item.message, this.#ridingAck()));
    }
  }

  #ridingAck() {
    this.#due.delete("ack");
    this.#incoming.told = this.#incoming.received;
    return this.#incoming.received;
  }

  // --- the channel --------------------------------------------------------------------------------

  /** A channel is open; `epoch` is new with each. */
  opened(epoch, now) {
    this.abandon();
    this.epoch = epoch;
    this.isOpen = true;
    this.#incoming.begin();
    this.#sent = this.#badInARow = 0;
    this.#heard(now);
    this.#due.set("idle", now + this.#timers.idle);
    const early = this.#fences.early(epoch);
    if (early !== null) this.#outlet.toChannel(sign("fenceAck", early));
    this.#fences.opened();
    this.#beginFence(now);
  }

  /** Another channel comes: an older one whose end was never settled is given up. */
  abandon() {
    if (this.isOpen) this.#endChannel("closing");
    if (this.way !== "node") this.#giveUp();
  }

  /** Leave the channel in good order; everything goes through the node then. */
  bye(reason, now) {
    if (!this.isOpen) return;
    this.#outlet.toChannel(sign("bye", reason));
    this.lost(reason, now);
  }

  /** The channel is of no use any more. */
  lost(reason, now) {
    if (!this.isOpen) return;
    this.#endChannel(reason);
    if (this.way !== "node") {
      this.way = "resuming";
      this.#due.set("resume", now + this.#timers.resume);
    }
    const bye = BYES.includes(reason) ? { bye: reason } : {}; // it may be there before the channel's own
    this.#outlet.ask("resume", { epoch: this.epoch, received: this.#incoming.received, ...bye });
  }

  #endChannel(reason) {
    this.isOpen = false;
    this.#incoming.drop();
    this.#frames = [];
    this.#due.clear();
    this.#ended.set(this.epoch, this.#incoming.received);
    if (this.#ended.size > this.#timers.keepEpochs)
      this.#ended.delete(this.#ended.keys().next().value);
    this.#outlet.close(reason);
  }

  // --- taking -------------------------------------------------------------------------------------

  /** A frame came on the channel. */
  frame(text, now) {
    if (!this.isOpen) return;
    this.#heard(now);
    try {
      this.#read(text, now);
      this.#badInARow = 0;
    } catch (error) {
      if (!(error instanceof BadFrame)) throw error;
      this.#bad += 1;
      this.#badInARow += 1;
      if (this.#badInARow >= MAX_FAULTS) this.lost("closing", now);
    }
  }

  #read(text, now) {
    const frame = read(text);
    if (["data", "begun", "piece"].includes(frame.kind)) this.#taken(frame, text.length, now);
    else if (frame.kind === "bytes") this.#added(this.#incoming.addContent(frame), now);
    else if (frame.kind === "ack") this.#acknowledged(frame.value, now);
    else if (frame.kind === "fenceAck") this.#fenceAnswered(frame.value, now);
    else if (frame.kind === "ping") this.#outlet.toChannel(sign("pong", frame.value));
    else if (frame.kind === "bye") this.lost(frame.value, now);
    else if (frame.kind === "text") throw new BadFrame("The frame is the field's.");
  }

  #taken(frame, size, now) {
    this.#acknowledged(frame.ack, now);
    if (!frame.seq) throw new BadFrame("The message has no number.");
    this.#due.set("idle", now + this.#timers.idle);
    this.#added(this.#incoming.add(frame, size), now);
  }

  #added(isGood, now) {
    if (isGood) this.proceed(now);
    else this.lost("closing", now);
  }

  /** Deliver what came, as far as it can be decided. */
  proceed(now) {
    this.#incoming.deliver();
    const waiting = this.#incoming.received - this.#incoming.told;
    if (!this.isOpen || !waiting) return;
    if (waiting >= ACK_EVERY) this.#outlet.toChannel(sign("ack", this.#ridingAck()));
    else if (!this.#due.has("ack")) this.#due.set("ack", now + this.#timers.ack);
  }

  #acknowledged(upto, now) {
    if (upto && this.#drop(Math.min(upto, this.#sent))) this.pump(now);
  }

  /** Keep no longer what has arrived, up to this number; whether there was anything. */
  #drop(upto) {
    const before = this.#window.length;
    while (this.#window.first?.seq <= upto) this.#window.shift();
    return this.#window.length < before;
  }

  // --- from the node to the channel ---------------------------------------------------------------

  /** Let nothing overtake what went to an address through the node while this was open. */
  fenceAgain(address, now) {
    if (["fencing", "channel"].includes(this.way) && this.#fences.add(address))
      this.#beginFence(now);
  }

  #beginFence(now) {
    this.way = "fencing";
    this.#due.set("fence", now + this.#timers.fence);
    this.#outlet.ask("fence", { epoch: this.epoch, k: this.#fences.next() });
  }

  #fenceAnswered(k, now) {
    if (this.way !== "fencing" || !this.#fences.isCurrent(k)) return;
    this.#fences.passed();
    this.#toChannel(now);
  }

  #fenceFailed(now) {
    const isTriedAgain = this.#fences.failed();
    if (this.#fences.hasPassed) return this.#toChannel(now);
    this.#allToNode();
    if (isTriedAgain) this.#due.set("refence", now + this.#timers.refence);
    else this.lost("closing", now);
  }

  #toChannel(now) {
    this.#due.delete("fence");
    this.way = "channel";
    this.pump(now);
  }

  /** The other side asks through the node; whether its epoch is known (else 410). */
  fenceAsked(epoch, k) {
    if (epoch === this.epoch && this.isOpen) {
      this.#outlet.toChannel(sign("fenceAck", k));
      return true;
    }
    return !this.#ended.has(epoch) && this.#fences.cameEarly(epoch, k);
  }

  // --- from the channel to the node ---------------------------------------------------------------

  /**
   * The other side has lost the channel and got `received` of us.
   *
   * @returns what has arrived here, for the answer; null if the epoch is unknown (410)
   */
  resumeAsked(epoch, received, bye = null) {
    if (epoch === this.epoch) {
      if (this.isOpen) this.#endChannel(BYES.includes(bye) ? bye : "closing");
      if (this.way !== "node") this.#settle(received);
    }
    return this.#ended.get(epoch) ?? null;
  }

  /** The answer to what was asked through the node; `received` is null for a refusal. */
  answered(method, params, received, now) {
    if (params.epoch !== this.epoch) return;
    if (method === "fence") {
      const isCurrent = this.way === "fencing" && this.#fences.isCurrent(params.k);
      if (received === null && isCurrent) this.#fenceFailed(now);
    } else if (this.way === "resuming") {
      if (received === null) this.#giveUp();
      else this.#settle(received);
    }
  }

  #settle(received) {
    this.#drop(received);
    this.resent += this.#window.length;
    for (const { message } of this.#window.takeAll()) this.#outlet.toNode(message);
    this.#allToNode();
  }

  #giveUp() {
    const text = "It was lost at switch-over: the other runtime does not say what it got.";
    for (const { message } of this.#window.takeAll()) this.#outlet.refuse(message, 503, text);
    this.#allToNode();
  }

  #allToNode() {
    this.way = "node";
    for (const name of ["fence", "resume"]) this.#due.delete(name);
    while (this.#held.length) this.#outlet.toNode(this.#held.shift().message);
  }

  // --- time ---------------------------------------------------------------------------------------

  /** When `tick` is needed next; null if nothing is waited for. */
  due() {
    return this.#due.size ? Math.min(...this.#due.values()) : null;
  }

  /** Do what is due. */
  tick(now) {
    for (const name of [...this.#due.keys()].filter((each) => this.#due.get(each) <= now)) {
      if (!(this.#due.get(name) <= now)) continue; // what came before it has changed that
      this.#due.delete(name);
      this.#onDue[name](now);
    }
  }

  #heard(now) {
    this.#due.set("ping", now + this.#timers.ping);
    this.#due.set("dead", now + this.#timers.dead);
  }
}
