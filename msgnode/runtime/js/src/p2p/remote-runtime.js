/**
 * The other runtimes that a runtime knows: what it has with each, and for how long it knows them.
 *
 * It follows docs/reference/p2p.md, rows 26-29.
 */

import { domainOf, parse } from "../addresses.js";
import { newId } from "../ids.js";
import { answerTo, codeOf, errorBody, isAnswerable, withoutMarks } from "../messages.js";
import { FieldLink } from "./field-link.js";
import { contentOf } from "./frames.js";
import { Link } from "./link.js";
import { withoutBytes } from "./senders.js";
import { countOf } from "./signalling.js";
import { HANDLER, NO_RETURN, REQUESTER, Redials, after, keepNewest, plain } from "./states.js";

const MAX_UNANSWERED = 10_000; // requests that came on the channel and are not answered
const EVENTS = { idle: "idle", forbidden: "forbidden" };

/** One other runtime: the state of the connection with it, its channel, its link. It is the outlet of its link. */
export class RemoteRuntime {
  /** The URL of our requester stub, which marks what came on the channel. */
  via;
  /** The stubs' URLs that the current connection is signalled between. */
  own = "";
  theirs = "";
  instance = ""; // which of the runtimes of this URL it is, if it has said so
  state = "";
  desc = ""; // why it is in that state, if anything is known
  isRequester = true;
  attempt = 0; // which set-up
  dialling = null; // the set-up that runs
  handling = null; // and the one that the other side has begun
  isLost = false; // its connection was, and is wanted again
  lostAt = 0;
  hasRedial = false; // which is planned
  isClaimed = false;
  listening = null; // for what comes to, or is sent through, `via`
  stubs = new Set(); // of theirs, newest last
  usedAt = 0;
  redials = new Redials();
  link;
  /** Called when its live connection has ended. */
  onLost = () => {};
  #bus;
  #signalling;
  #node;
  #whereabouts;
  #timers;
  #unanswered = new Map();
  #rtc = null;
  #isReplacing = false;
  #timer = null;
  #armedFor = 0;

  /** @param shared {signalling, node: the NodePath, whereabouts, timers, requesterURL: "" for one of its own} */
  constructor({ signalling, node, whereabouts, timers, requesterURL }, runtime, handler) {
    this.runtime = runtime;
    this.handler = handler;
    this.via = requesterURL || `runtime://${parse(runtime).domain}/p2prequester/${newId()}`;
    [this.#bus, this.#signalling, this.#node, this.#whereabouts] = [
      signalling.bus,
      signalling,
      node,
      whereabouts,
    ];
    this.#timers = timers;
    this.link = new Link(this, timers);
  }

  // --- state --------------------------------------------------------------------------------------

  /** A new connection is to be set up. */
  begin(isRequester, own, theirs) {
    [this.isRequester, this.own, this.theirs] = [isRequester, own, theirs];
    this.state = "";
    this.attempt += 1;
    this.enter("deployed");
  }

  /** Something happened to the connection; who listens to the status of the stub or of our runtime is told. */
  enter(event, desc = "") {
    const state = after(this.isRequester ? REQUESTER : HANDLER, this.state, event);
    if (state === this.state) return;
    [this.state, this.desc] = [state, desc];
    if (state === "ended") return;
    const { runtimeURL } = this.#bus;
    const said = { value: state, ...(desc ? { desc } : {}) };
    this.#tell(this.stub, { ...said, resource: this.runtime });
    this.#tell(runtimeURL, { ...said, resource: this.stub, peer: this.runtime });
  }

  #tell(from, body) {
    const to = `${from}/status`;
    if (this.#bus.isHeard(to)) this.#bus.postMessage({ type: "update", from, to, body });
  }

  /** Our stub that the connection is of. */
  get stub() {
    return this.isRequester ? this.via : this.#signalling.handler;
  }

  get isSettingUp() {
    return this.state === "created" || this.state === "in-progress";
  }

  /** Whether what is sent does not simply go through the node. */
  get isOnChannel() {
    return this.link.way !== "node";
  }

  /** Whether it is in use, or about to be. */
  get isBusy() {
    return this.link.isOpen || this.isOnChannel || Boolean(this.handling || this.dialling);
  }

  /** Whether it must not be forgotten: something is under way, or about to be. */
  isNeeded() {
    const isBusy =
      this.isSettingUp || this.state === "live" || this.dialling !== null || this.hasRedial;
    return isBusy || this.link.isOpen || !this.link.isQuiet();
  }

  // --- the channel --------------------------------------------------------------------------------

  /** The channel of a connection is open; it replaces an older one. */
  opened(rtc, epoch, isField = false) {
    this.#rtc?.close();
    this.#rtc = rtc;
    rtc.onFrame = (frame) => this.#do((now) => this.link.frame(frame, now));
    rtc.onLow = () => this.#do((now) => this.link.pump(now));
    rtc.onClose = () => this.#do((now) => this.link.lost("closed", now));
    this.#isReplacing = true;
    if (isField !== this.link.isField) {
      this.link.abandon();
      this.link = new (isField ? FieldLink : Link)(this, this.#timers);
    }
    this.#do((now) => this.link.opened(epoch, now));
    this.#isReplacing = false;
    this.isLost = false;
    this.enter("opened");
  }

  /** Send a message in its turn; `isForNode`: through the node, as its request came. */
  send(message, isForNode = false) {
    const size = JSON.stringify(message).length + (contentOf(message)?.byteLength ?? 0);
    this.#do((now) => this.link.send(message, size, now, isForNode));
  }

  /** Answer what came on the channel. */
  answer(message) {
    keepNewest(this.#unanswered, keyOf(message), true, MAX_UNANSWERED);
    this.send(message);
  }

  /** Let nothing overtake what went to an address through the node while this was open; the field knows no fences. */
  fenceAgain(address) {
    if (!this.link.isField) this.#do((now) => this.link.fenceAgain(address, now));
  }

  /** The other side's fence or resume came through the node; see fenceAsked and resumeAsked of Link. */
  fenceAsked(epoch, k) {
    return this.link.fenceAsked(epoch, k);
  }

  resumeAsked(epoch, received, bye) {
    const got = this.link.resumeAsked(epoch, received, bye);
    this.#arm();
    return got;
  }

  /** Leave the channel in good order. */
  bye(reason) {
    this.#do((now) => this.link.bye(reason, now));
  }

  /** There must be no connection: end the set-up that runs, or the channel. */
  forbid() {
    for (const setUp of [this.dialling, this.handling]) setUp?.cancel();
    this.dialling = this.handling = null;
    this.attempt += 1; // a channel that opens at this moment is of none that runs
    this.isLost = false;
    if (this.state !== "live") this.enter("forbidden", "forbidden"); // else the end of the channel says so
    this.bye("forbidden");
  }

  #do(call) {
    this.usedAt = this.#bus.clock.now();
    call(this.usedAt);
    this.#arm();
  }

  #arm() {
    const { clock } = this.#bus;
    const due = this.link.due();
    if (this.#timer !== null && due !== null && this.#armedFor <= due) return; // early does no harm
    if (this.#timer !== null) clock.clearTimeout(this.#timer);
    this.#timer = null;
    if (due === null) return;
    this.#armedFor = due;
    const tick = () => {
      this.#timer = null;
      this.#do((now) => this.link.tick(now));
    };
    this.#timer = clock.setTimeout(tick, Math.max(0, Math.ceil(due - clock.now())));
  }

  /** Nothing happens any more. Resolves when the connection is closed. */
  stop() {
    if (this.#timer !== null) this.#bus.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.dialling?.cancel();
    return this.#rtc?.close();
  }

  /** It is known no longer: nothing is left of it. */
  forget() {
    this.enter("forgotten");
    this.stop();
    this.listening.remove();
    if (this.isClaimed) this.#signalling.unclaim([this.via]);
  }

  // --- outlet of the link -------------------------------------------------------------------------

  toChannel(frame) {
    this.#rtc?.send(frame);
  }

  hasRoom() {
    return this.#rtc?.hasRoom() ?? false;
  }

  /** An answer whose request came on the channel goes from stub to stub: the node does not expect it. */
  toNode(message) {
    const isExpected = message.type !== "response" || !this.#unanswered.delete(keyOf(message));
    if (isExpected || this.link.isField) {
      this.#node.send(message);
      return;
    }
    this.#execute("deliver", contentOf(message) ? withoutBytes(message) : message, (code) => {
      if (code >= 300) this.#bus.report("p2p.not-delivered", { message });
    });
  }

  ask(method, params) {
    this.#execute(method, params, (code, value) => {
      const received = code === 200 ? countOf(value?.received) : null;
      if (code >= 200) this.#do((now) => this.link.answered(method, params, received, now));
    });
  }

  #execute(method, said, onAnswer) {
    const { own: from, theirs: to } = this;
    const body = { method, params: [said] };
    this.#bus.postMessage({ type: "execute", from, to, body }, ({ body: { code, value } }) =>
      onAnswer(code, value),
    );
  }

  /**
   * Take in what came from the other side; false if its sender has to be looked up first.
   *
   * @param again called after that
   */
  take(message, again = null) {
    const { verdict, about } = this.#whereabouts.judge(message, this.runtime);
    if (verdict === "unknown")
      this.#whereabouts.ask(about, again ?? this, again ?? (() => this.#proceed()));
    else if (verdict === "forged") this.#forged(message, about);
    else if (verdict === "bad" || !this.#takenIn(message))
      this.#bus.report("p2p.bad", { message, isQuiet: true });
    return verdict !== "unknown";
  }

  #proceed() {
    this.#do((now) => this.link.proceed(now));
  }

  /** Hand a message to the bus; false if it is none. */
  #takenIn(message) {
    const { body } = message;
    if (message.type.toLowerCase() === "response") {
      if (!this.#bus.isExpected(message, this.via)) {
        this.#bus.unclaimed(message);
        return true;
      }
      if (codeOf(body) === 404) this.#whereabouts.forget(message.from);
    }
    const said = typeof body === "string" ? { value: body } : (body ?? {});
    try {
      this.#bus.postFrom(this.via, withoutMarks({ ...message, body: said }));
      return true;
    } catch {
      return false;
    }
  }

  #forged(message, text) {
    const error = new Error(`${this.runtime} posted as another: ${text}`);
    this.#bus.report("p2p.forged", { error, message });
    if (this.#whereabouts.isTooManyForged(this.runtime))
      queueMicrotask(() => this.bye("forbidden"));
    else if (isAnswerable(message) && message.id)
      this.answer(answerTo(message, errorBody(403, text)));
  }

  refuse(message, code, text) {
    this.#bus.refuse(message, code, text);
  }

  isAwaited(message) {
    return message.type !== "response" && this.#bus.isAwaited(message);
  }

  close(reason) {
    if (this.#isReplacing) return;
    this.#rtc?.close();
    this.#rtc = null;
    if (this.state !== "live") return;
    const event = EVENTS[reason] ?? "lost";
    this.enter(event, reason);
    this.isLost = this.isRequester && !NO_RETURN.has(event);
    this.lostAt = this.#bus.clock.now();
    this.onLost();
  }
}

/** The remote runtimes that are known: bounded in number and time. Pure. */
export class KnownRuntimes {
  #timers;
  #byRuntime = new Map();
  #byVia = new Map();
  #byStub = new Map();

  constructor(timers) {
    this.#timers = timers;
  }

  get size() {
    return this.#byRuntime.size;
  }

  /** Whether a channel is in use with any. */
  hasChannel() {
    for (const { isOnChannel } of this) if (isOnChannel) return true;
    return false;
  }

  /** Whether a channel is in use that a field's runtime of this domain has set up, which says nothing of its hyperties. */
  wasDialledByField(domain) {
    for (const { link, isRequester, isOnChannel, runtime } of this)
      if (link.isField && !isRequester && isOnChannel && domainOf(runtime) === domain) return true;
    return false;
  }

  [Symbol.iterator]() {
    return this.#byRuntime.values();
  }

  /** The one of a runtime URL, in either spelling of its scheme; with a handler, the tab that has it. */
  of(runtime, handler = "") {
    const last = this.#byRuntime.get(plain(runtime));
    if (!last || !handler || ["", handler].includes(last.handler)) return last;
    return this.allOf(runtime).find((each) => each.handler === handler);
  }

  /** The one to dial for a handler; undefined if its runtime is known by others, which are in use. */
  toDial(runtime, handler) {
    const known = this.of(runtime, handler);
    if (known) return known;
    const last = this.of(runtime);
    if (!last?.isBusy) return last; // it has started again
    this.#setAside(last);
    return undefined;
  }

  /** The one whose channel messages are marked so. */
  ofVia(via) {
    return this.#byVia.get(via);
  }

  /** The one that has this stub. */
  ofStub(stub) {
    return this.#byStub.get(stub);
  }

  /** Know one from now on; false if there are too many that may not be forgotten. */
  add(remote, now) {
    if (this.size >= this.#timers.peers && !this.#makeRoom(now)) return false;
    this.#byRuntime.set(plain(remote.runtime), remote);
    this.#byVia.set(remote.via, remote);
    remote.usedAt = now;
    return true;
  }

  /**
   * The one for an instance of a runtime: its own, or one whose channel has ended. Who talks with another
   * instance, or is being invited by it, is set aside for it. One that has not said which instance it is, is the one
   * that has its handler.
   */
  instance(runtime, instance, handler = "") {
    const key = plain(runtime);
    const known = this.#byRuntime.get(key);
    const isIt = (each) =>
      each.instance ? each.instance === instance : [each.handler, ""].includes(handler);
    if (!known || !instance || isIt(known)) return known;
    const all = this.allOf(runtime);
    const own = all.find((each) => each.instance === instance) ?? all.find(isIt);
    if (!own && !known.isBusy) return known; // it has started again
    this.#setAside(known);
    if (own) {
      this.#byRuntime.delete(`${key}#${own.via}`);
      this.#byRuntime.set(key, own);
    }
    return own;
  }

  #setAside(remote) {
    const key = plain(remote.runtime);
    this.#byRuntime.delete(key);
    this.#byRuntime.set(`${key}#${remote.via}`, remote);
  }

  /** Those of all instances of a runtime. */
  allOf(runtime) {
    return [...this].filter((each) => plain(each.runtime) === plain(runtime));
  }

  /** A connection is signalled with this stub; false if it is another runtime's. */
  signals(remote, stub) {
    if ((this.#byStub.get(stub) ?? remote) !== remote) return false;
    this.#byStub.set(stub, remote);
    remote.stubs.delete(stub);
    remote.stubs.add(stub);
    if (remote.stubs.size > this.#timers.keepEpochs + 1) {
      const [oldest] = remote.stubs;
      remote.stubs.delete(oldest);
      this.#byStub.delete(oldest);
    }
    return true;
  }

  /** Forget who was not used for long. */
  forgetUnused(now) {
    for (const remote of [...this]) {
      if (now - remote.usedAt >= this.#timers.forget && this.#mayGo(remote, now))
        this.#forget(remote);
    }
  }

  #makeRoom(now) {
    const mayGo = [...this].filter((each) => this.#mayGo(each, now));
    if (!mayGo.length) return false;
    this.#forget(mayGo.reduce((oldest, each) => (each.usedAt < oldest.usedAt ? each : oldest)));
    return true;
  }

  #mayGo(remote, now) {
    const isSettled = !remote.link.epoch || now - remote.usedAt >= this.#timers.linger;
    return isSettled && !remote.isNeeded();
  }

  #forget(remote) {
    const key = plain(remote.runtime);
    this.#byRuntime.delete(this.#byRuntime.get(key) === remote ? key : `${key}#${remote.via}`);
    this.#byVia.delete(remote.via);
    for (const stub of remote.stubs) this.#byStub.delete(stub);
    remote.forget();
  }
}

function keyOf({ to, id }) {
  return `${to}\n${id}`;
}
