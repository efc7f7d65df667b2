/**
 * The way of messages to one other runtime: the node or a channel, in order and exactly once. Pure.
 *
 *     node  ──channel opens──►  fencing  ──fenceAck──►  channel  ──lost──►  resuming  ──►  node
 *                                  └──no answer──►  node, tried once more
 *
 * Rules
 * - A fence goes through the node behind all that went there before; its answer comes on the channel. Until then what
 *   is sent waits (`fences.js`).
 * - What went on the channel is kept until the other side says that it has delivered it. When the channel is lost, each
 *   side tells the other through the node how far it has come (`resume`) and takes nothing more from that channel; what
 *   had not arrived goes through the node, then what waits.
 * - If the other side no longer knows the epoch or does not answer, what was not acknowledged is lost, and said to be.
 * - Time is passed in; `due()` is when `tick()` is needed next.
 */

import { BYES, BadFrame, Transfer, join, read, sign, write } from "./frames.js";
import { TIMERS } from "./settings.js";

/** A queue that gives its oldest item in constant time. */

export class Queue {
  #items = [];
  #first = 0;

  get length() {
    return this.#items.length - this.#first;
  }

  /** The oldest item; undefined if there is none. */
  get first() {
    return this.#items[this.#first];
  }

  push(...items) {
    this.#items.push(...items);
  }

  /** Take the oldest item out. */
  shift() {
    const item = this.#items[this.#first];
    if (this.#first === this.#items.length) return undefined;
    this.#items[this.#first] = undefined;
    this.#first += 1;
    if (this.#first * 2 > this.#items.length) {
      this.#items.splice(0, this.#first);
      this.#first = 0;
    }
    return item;
  }

  /** Take everything out, the oldest first. */
  takeAll() {
    const all = this.#items.slice(this.#first);
    [this.#items, this.#first] = [[], 0];
    return all;
  }
}

/** The messages that wait for their way: in order, and bounded in size. Pure. */

export class Held {
  #mostSize;
  #items = new Queue(); // {message, size, ...}
  #size = 0;

  constructor(mostSize) {
    this.#mostSize = mostSize;
  }

  get length() {
    return this.#items.length;
  }

  /** The oldest one; undefined if there is none. */
  get first() {
    return this.#items.first;
  }

  /** Have a message wait; false if there is no room for it. */
  add(item) {
    if (this.#size + item.size > this.#mostSize) return false;
    this.#items.push(item);
    this.#size += item.size;
    return true;
  }

  /** The oldest one; it waits no longer. */
  take() {
    const item = this.#items.shift();
    this.#size -= item.size;
    return item;
  }
}

/** What was sent on a channel and is not acknowledged yet: bounded in number and size. Pure. */

export class Window {
  #most;
  #mostSize;
  #items = new Queue(); // {message, size, seq}
  #size = 0;

  constructor(most, mostSize) {
    this.#most = most;
    this.#mostSize = mostSize;
  }

  get length() {
    return this.#items.length;
  }

  /** Whether there is no room for this one; an empty window has room for any. */
  isFull({ size }) {
    return this.length > 0 && (this.#size + size > this.#mostSize || this.length >= this.#most);
  }

  /** Keep a message that was sent. */
  add(item) {
    this.#items.push(item);
    this.#size += item.size;
  }

  /** Keep no longer what has arrived, up to this number; whether there was anything. */
  drop(upto) {
    let isAny = false;
    while (this.#items.length && this.#items.first.seq <= upto) {
      this.#size -= this.#items.shift().size;
      isAny = true;
    }
    return isAny;
  }

  /** Everything that is left; it is kept no longer. */
  take() {
    this.#size = 0;
    return this.#items.takeAll().map(({ message }) => message);
  }
}

/**
 * What comes on a channel: numbered, put together from pieces, delivered in order. Pure.
 *
 * Rules
 * - A message counts as received when it was delivered, not when it came: what still waits for a check
 *   when the channel ends is sent again by the other side.
 * - A message that came before is dropped. One that skips others ends the channel, since a channel
 *   neither loses nor swaps: the other side has lost count.
 */

export class Incoming {
  received = 0; // the last message that was delivered here
  told = 0; // the last one that was acknowledged
  faults = 0;
  #take;
  #limit;
  #mostSize;
  #seen = 0;
  #inbox = new Queue(); // {seq, message, size}
  #size = 0; // of all of them
  #begunSize = 0; // of the one that is coming
  #pieces = [];
  #transfer = null; // {begun, transfer} of the message that comes next

  /**
   * @param take delivers a message; false if it cannot be decided yet
   * @param limits {inbox, inboxSize}: messages that may wait, and characters of them
   */
  constructor(take, { inbox, inboxSize }) {
    this.#take = take;
    this.#limit = inbox;
    this.#mostSize = inboxSize;
  }

  /** A new channel: numbers start again. */
  begin() {
    this.received = this.told = this.#seen = 0;
    this.drop();
  }

  /** Take nothing more of what came and was not delivered. */
  drop() {
    this.#inbox = new Queue();
    this.#pieces = [];
    this.#transfer = null;
    this.#size = this.#begunSize = 0;
  }

  /** Whether something came that is not delivered yet. */
  hasWaiting() {
    return this.#inbox.length > 0;
  }

  /** Take a frame of so many characters. Returns false if the channel has to end. Throws BadFrame. */
  add(frame, size) {
    if (this.#transfer) {
      this.faults += 1;
      return false; // a content comes in one go
    }
    if (frame.seq !== this.#seen + 1) {
      this.faults += 1;
      return frame.seq <= this.#seen;
    }
    if (frame.kind === "data") {
      this.#begunSize = size;
      return this.#arrived(frame.seq, frame.message);
    }
    if (frame.kind === "begun") {
      this.#begunSize = size + frame.size;
      this.#transfer = { begun: frame, transfer: new Transfer(frame) };
      return true;
    }
    if (frame.index !== this.#pieces.length) {
      this.faults += 1;
      return frame.index < this.#pieces.length;
    }
    this.#begunSize = frame.index ? this.#begunSize + size : size;
    this.#pieces.push(frame.text);
    if (this.#pieces.length < frame.count) return true;
    const pieces = this.#pieces;
    this.#pieces = [];
    return this.#arrived(frame.seq, join(pieces));
  }

  /** Take a piece of a content. Returns false if the channel has to end. Throws BadFrame. */
  addContent(frame) {
    if (this.#transfer?.begun.uuid !== frame.uuid)
      throw new BadFrame("No content of this uuid is under way.");
    const { begun, transfer } = this.#transfer;
    if (transfer.add(frame)) {
      this.#transfer = null;
      return this.#arrived(begun.seq, transfer.message());
    }
    const progress = transfer.progress();
    if (progress) this.#take(progress);
    return true;
  }

  /** Deliver what came, as far as it can be decided. */
  deliver() {
    const inbox = this.#inbox; // another one if delivering ends the channel
    while (inbox.length && inbox === this.#inbox) {
      const { seq, message, size } = inbox.first;
      if (!this.#take(message) || inbox !== this.#inbox) return;
      inbox.shift();
      this.#size -= size;
      this.received = seq;
    }
  }

  #arrived(seq, message) {
    this.#seen = seq;
    this.#pieces = [];
    this.#inbox.push({ seq, message, size: this.#begunSize });
    this.#size += this.#begunSize;
    return this.#inbox.length <= this.#limit && this.#size <= this.#mostSize; // more than may be under way
  }
}

/**
 * The fences of one channel, so that nothing on it overtakes what is still at the node. Pure.
 *
 * Rules
 * - The first one is for all that went through the node before the channel was open. If it is not answered everything
 *   goes on through the node, and it is tried once more.
 * - Where the channel is in use, and messages went through the node to an address of which nobody knew that it is at
 *   the other side, another one is for that address. If it is not answered the address stays with the node as long as
 *   the channel is open.
 */

const TRIES = 2; // of the first one, for one channel

/** Their numbers, and what became of them. */
export class Fences {
  hasPassed = false;
  #number = 0;
  #failures = 0;
  #early = { epoch: "", k: 0 };
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

  /** Whether it is the last one. */
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
    return this.#failures < TRIES;
  }

  /** Whether a message stays with the node, for the sake of those before it. */
  isAtNode({ to, type }) {
    return this.#atNode.has(to) && type !== "response";
  }

  /** One came through the node whose channel is not open here yet; true. */
  cameEarly(epoch, number) {
    this.#early = { epoch, k: number };
    return true;
  }

  /** The number of the one that came before this channel was open; null for none. */
  early(epoch) {
    return this.#early.epoch === epoch ? this.#early.k : null;
  }
}

const MAX_FAULTS = 10; // frames in a row that cannot be read
const ACK_EVERY = 32; // messages

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
  #frames = new Queue(); // pieces that wait for room in the channel
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
    this.#incoming = new Incoming((message) => outlet.take(message), timers);
    this.#held = new Held(timers.heldSize);
    this.#window = new Window(timers.window, timers.windowSize);
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
    if (this.#held.add({ message, size, isForNode, seq: 0 })) this.pump(now);
    else this.#outlet.refuse(message, 503, "Too many messages wait for their way.");
  }

  /** Send what the channel and the window have room for. */
  pump(now) {
    while (this.way === "channel") {
      while (this.#frames.length && this.#outlet.hasRoom())
        this.#outlet.toChannel(this.#frames.shift());
      const item = this.#held.first;
      if (!this.isOpen || this.#frames.length || !item) return; // a frame that the channel does not take ends it
      const isForNode = item.isForNode || this.#fences.isAtNode(item.message);
      if (!isForNode && this.#window.isFull(item)) return;
      this.#held.take();
      if (isForNode) {
        this.#outlet.toNode(item.message);
        continue;
      }
      item.seq = this.#sent += 1;
      this.#window.add(item);
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
    this.#frames.takeAll();
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
    if (upto && this.#window.drop(Math.min(upto, this.#sent))) this.pump(now);
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
    this.#window.drop(received);
    this.resent += this.#window.length;
    for (const message of this.#window.take()) this.#outlet.toNode(message);
    this.#allToNode();
  }

  #giveUp() {
    const text = "It was lost at switch-over: the other runtime does not say what it got.";
    for (const message of this.#window.take()) this.#outlet.refuse(message, 503, text);
    this.#allToNode();
  }

  #allToNode() {
    this.way = "node";
    for (const name of ["fence", "resume"]) this.#due.delete(name);
    while (this.#held.length) this.#outlet.toNode(this.#held.take().message);
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
