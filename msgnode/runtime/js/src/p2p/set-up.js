/**
 * Setting connections up, from both sides: dialling another runtime, and being dialled by one.
 *
 * Rules
 * - Nothing of a set-up outlives it: what was claimed at the node is given back, and a channel that
 *   did not open in time is closed.
 * - Both sides may invite at once: one invitation is refused 409, and its sender waits for the other.
 *   The same one gives way if it had been taken before.
 * - A runtime with which a set-up failed is left alone for a while.
 * - Who invites has proved nothing yet: until he has confirmed it, or read our answer in the name of his
 *   runtime (the field), nothing that is known of that runtime changes.
 */

import { newId } from "../ids.js";
import { BadDescription, PROTOCOL, RtcConnection } from "./rtc.js";
import { ConnectionObject, RemoteObject, SetUpError } from "./signalling.js";
import {
  Handled,
  NO_RETURN,
  Quarantine,
  plain,
  runtimeOfHandler,
  staysRequester,
} from "./states.js";

/** What runs until it is done, cancelled, or out of time. */
class Attempt {
  isCancelled = false;
  #clock;
  #timer;
  #stop;
  #over;

  constructor(time, clock) {
    this.#clock = clock;
    this.#over = new Promise((_, reject) => (this.#stop = reject));
    this.#over.catch(() => {});
    this.#timer = clock.setTimeout(
      () => this.#stop(new SetUpError(504, "The channel did not open in time.")),
      time,
    );
  }

  /** A step, unless the whole is over before. */
  step(promise) {
    return Promise.race([promise, this.#over]);
  }

  cancel() {
    this.isCancelled = true;
    this.end();
    this.#stop(new SetUpError(0, "It was cancelled."));
  }

  end() {
    this.#clock.clearTimeout(this.#timer);
  }
}

/** The set-ups of one runtime. */
export class SetUps {
  #peers;
  #settings;
  #bus;
  #talk;
  #platform;
  #handled = new Handled();
  #quarantine;
  #objects = new Map(); // url -> ConnectionObject
  #awaiting = new Map(); // our requester's URL -> made: who waits for D
  #attempts = new Set();
  #timers = new Set();

  /**
   * @param peers {known, peer(runtime, handler), signals(peer, stub), claim(peer), failed(peer, until, code), isClosed}
   * @param platform {RTCPeerConnection, qos: gives TURN servers, where the settings ask for some}
   */
  constructor(peers, settings, bus, talk, platform) {
    [this.#peers, this.#settings, this.#bus, this.#talk, this.#platform] = [
      peers,
      settings,
      bus,
      talk,
      platform,
    ];
    this.#quarantine = new Quarantine(settings.timers.quarantine);
  }

  // --- dialling -----------------------------------------------------------------------------------

  /** Set a connection up, unless there is one, or it is no time for one. */
  dial(peer) {
    const isBusy = peer.isSettingUp || peer.dialling !== null;
    if (this.#peers.isClosed || isBusy || peer.link.isOpen || peer.isOnChannel) return;
    const until = this.#quarantine.until(peer.runtime);
    if (until > this.#bus.clock.now()) {
      this.#peers.failed(peer, until, 0);
      return;
    }
    const attempt = this.#begin();
    peer.dialling = attempt;
    this.#request(peer, attempt).catch((error) => this.#bus.report("p2p.failed", { error }));
  }

  /** Set a connection up as requester. */
  async #request(peer, attempt) {
    const talk = this.#talk;
    peer.begin(true, peer.via, peer.handler);
    const made = {
      epoch: newId().slice(0, 16),
      peer,
      attempt: peer.attempt,
      expires: Date.now() / 1000 + this.#settings.timers.setUp / 1000,
    };
    const answer = new Promise((resolve) => {
      made.takeAnswer = resolve;
    });
    this.#awaiting.set(peer.via, made);
    try {
      this.#peers.signals(peer, peer.handler);
      await attempt.step(this.#connection(made));
      const described = await attempt.step(made.rtc.offer());
      await attempt.step(this.#peers.claim(peer));
      this.#object(made, { stub: peer.via, to: peer.handler, runtime: peer.runtime, described });
      await attempt.step(made.object.offer(made.expires));
      peer.enter("answered");
      const { url, isField } = await attempt.step(answer);
      if (!isField) await attempt.step(talk.confirm(peer.via, peer.handler, made.epoch, url));
      const answered = isField
        ? this.#observed(made, { url, own: peer.via, kind: "answer" })
        : talk.described(url, peer.via);
      await attempt.step(made.rtc.accept(await attempt.step(answered)));
      made.remote?.giveCandidates((candidate) => made.rtc.addCandidate(candidate));
      await attempt.step(made.opened);
    } catch (error) {
      if (!(error instanceof SetUpError || error instanceof BadDescription)) throw error;
      if (error.code === 409)
        this.#awaitInvitation(peer); // it invites us, too
      else if (!attempt.isCancelled) this.#failed(peer, error.message, error.code);
    } finally {
      if (peer.dialling === attempt) peer.dialling = null;
      if (this.#awaiting.get(peer.via) === made) this.#awaiting.delete(peer.via);
      this.#end(attempt, made);
    }
  }

  /** The description of the other side's object, whenever it comes. */
  #observed(made, said) {
    made.remote = new RemoteObject(this.#talk, said);
    return made.remote.description();
  }

  /** The other side's invitation counts; it has the time of a set-up to come about. */
  #awaitInvitation(peer) {
    peer.enter("glare", "glare");
    const { attempt } = peer;
    const timer = this.#bus.clock.setTimeout(() => {
      this.#timers.delete(timer);
      if (peer.attempt === attempt)
        this.#failed(peer, "The other side's invitation did not come about.");
    }, this.#settings.timers.setUp);
    this.#timers.add(timer);
  }

  #failed(peer, text, code = 0) {
    if (!peer.isSettingUp) return;
    const until = this.#quarantine.failed(peer.runtime, this.#bus.clock.now());
    peer.enter("broken", text);
    this.#peers.failed(peer, until, code);
  }

  #begin() {
    const attempt = new Attempt(this.#settings.timers.setUp, this.#bus.clock);
    this.#attempts.add(attempt);
    return attempt;
  }

  #end(attempt, made) {
    attempt.end();
    this.#attempts.delete(attempt);
    made.isOver = true;
    made.remote?.free();
    if (made.object) {
      this.#objects.delete(made.object.url);
      made.object.free();
    }
    if (made.isOpen) return;
    if (made.rtc) made.rtc.close();
    else made.release?.();
  }

  #object(made, said) {
    made.object = new ConnectionObject(this.#talk, {
      url: this.#talk.newObject(said.stub),
      epoch: made.epoch,
      ...said,
    });
    this.#objects.set(made.object.url, made.object);
  }

  /** Makes the connection; `made.opened` resolves when its channel is open. */
  async #connection(made) {
    const { relayOnly, reserve, timers } = this.#settings;
    const { qos, RTCPeerConnection } = this.#platform;
    let { iceServers } = this.#settings;
    if (reserve && qos) {
      const reserved = await qos.iceServers({ mediaTypes: ["data"] }, iceServers);
      made.release = () =>
        reserved.release().catch((error) => this.#bus.report("qos.not-released", { error }));
      if (made.isOver) {
        made.release();
        return;
      }
      ({ iceServers } = reserved.configuration);
    }
    const rtc = new RtcConnection({
      iceServers,
      relayOnly,
      gatherTime: timers.gather,
      clock: this.#bus.clock,
      RTCPeerConnection,
    });
    made.rtc = rtc;
    if (made.release) rtc.onEnd = made.release;
    made.opened = new Promise((resolve) => {
      rtc.onOpen = () => {
        // Nobody has read what opens it, or it must not come about any more.
        if (!made.peer || made.attempt !== made.peer.attempt) return;
        made.isOpen = true;
        this.#handled.end(made);
        this.#quarantine.lift(made.peer.runtime);
        made.peer.opened(rtc, made.epoch, Boolean(made.remote));
        resolve();
      };
    });
  }

  // --- being dialled ------------------------------------------------------------------------------

  /** Take an invitation. Throws SetUpError. */
  invited(message, invited) {
    const { known } = this.#peers;
    const own = this.#bus.runtimeURL;
    const { runtime, isField } = invited;
    this.#checkProtocol(invited);
    const isNamed = isField || runtimeOfHandler(invited.handler) === runtime;
    const isOwnStub = ["", runtime].includes(runtimeOfHandler(invited.stub));
    if (!isNamed || !isOwnStub || plain(own) === plain(runtime)) {
      throw new SetUpError(403, "An invitation names the runtime that it is of.");
    }
    const peer = known.of(runtime, invited.handler);
    const open = [...known].filter((each) => each !== peer && each.link.isOpen).length;
    if (this.#handled.isTooMany(invited, open, this.#bus.clock.now()) || this.#peers.isClosed) {
      throw new SetUpError(429, "This runtime takes no more connections at the moment.");
    }
    if (peer?.dialling && staysRequester(own, runtime)) throw new SetUpError(409, "glare");
    this.#talk.answer(message, 200);
    const made = { epoch: invited.epoch, peer: null };
    this.#handled.begin(made, invited);
    this.#handle(made, invited).catch((error) => this.#bus.report("p2p.failed", { error }));
  }

  #checkProtocol({ isField }) {
    if (isField && !this.#settings.fieldPeers)
      throw new SetUpError(501, `This runtime sets up connections of ${PROTOCOL} alone.`);
  }

  /** Set a connection up as handler. */
  async #handle(made, invited) {
    const { url, stub, runtime, epoch, handler, isField } = invited;
    const talk = this.#talk;
    const attempt = (made.handling = this.#begin());
    try {
      if (!isField) {
        await attempt.step(talk.confirm(talk.handler, handler, epoch, url));
        this.#proved(made, invited);
      }
      await attempt.step(this.#connection(made));
      const offered = isField
        ? this.#observed(made, { url, own: talk.handler, kind: "offer" })
        : talk.described(url, talk.handler);
      const described = await attempt.step(made.rtc.answer(await attempt.step(offered)));
      made.remote?.giveCandidates((candidate) => made.rtc.addCandidate(candidate));
      this.#object(made, { stub: talk.handler, to: stub, runtime, described });
      if (isField) made.object.onRead = () => this.#proved(made, invited).enter("announced");
      await attempt.step(made.object.offer(Date.now() / 1000 + this.#settings.timers.setUp / 1000));
      if (isField) await attempt.step(made.object.read);
      made.peer.enter("announced");
      await attempt.step(made.opened);
    } catch (error) {
      if (!(error instanceof SetUpError || error instanceof BadDescription)) throw error;
      this.#bus.report("p2p.not-handled", { isQuiet: true });
      if (!made.peer && error.code === 404) this.#handled.denied(runtime);
      if (made.peer?.isSettingUp && !attempt.isCancelled) {
        made.peer.enter("broken", error.message);
        this.#peers.failed(made.peer, this.#bus.clock.now(), 0); // it may have come in the place of one that we began
      }
    } finally {
      this.#handled.end(made);
      if (made.peer?.handling === attempt) made.peer.handling = null;
      this.#end(attempt, made);
    }
  }

  /** The inviter is the runtime that he says. Throws SetUpError. */
  #proved(made, { runtime, handler, stub, instance, isField }) {
    const peer = this.#peers.peer(runtime, handler, instance);
    if (!peer) throw new SetUpError(429, "This runtime knows too many others at the moment.");
    this.#peers.signals(peer, stub);
    // Were each to give way to the other, nothing would be left.
    if (peer.dialling && !isField && staysRequester(this.#bus.runtimeURL, runtime))
      throw new SetUpError(409, "glare");
    if (peer.dialling) {
      peer.dialling.cancel(); // its invitation counts
      peer.dialling = null;
      this.#awaitInvitation(peer);
    }
    peer.handling?.cancel(); // the other side has begun anew
    made.peer = peer;
    peer.instance = instance;
    peer.handler = handler || peer.handler;
    peer.begin(false, this.#talk.handler, stub);
    made.attempt = peer.attempt;
    peer.handling = made.handling;
    return peer;
  }

  /** The other side has answered our invitation. Throws SetUpError. */
  announced(peer, message, invited) {
    this.#checkProtocol(invited);
    const waiting = this.#awaiting.get(message.to);
    const isTheirs = peer && waiting?.peer === peer && waiting.object?.wasRead;
    if (!isTheirs || (!invited.isField && waiting.epoch !== invited.epoch))
      throw new SetUpError(404, "Nobody here waits for this connection.");
    this.#awaiting.delete(message.to);
    this.#talk.answer(message, 200);
    peer.instance = invited.instance;
    waiting.takeAnswer(invited);
  }

  /** Say whether we made an object. Throws SetUpError. */
  confirm(message, { epoch, resource }) {
    if (this.#objects.get(resource)?.epoch !== epoch)
      throw new SetUpError(404, "This runtime has made no such object.");
    this.#talk.answer(message, 200);
  }

  /** End what is under way. */
  close() {
    for (const attempt of [...this.#attempts]) attempt.cancel();
    for (const timer of this.#timers) this.#bus.clock.clearTimeout(timer);
    this.#timers.clear();
  }
}

/**
 * Dialling lost connections again.
 *
 * Rules
 * - Who had set a connection up dials again when it is lost; not when it ended because nobody used it, or nobody may.
 * - A try that fails is followed by the next when the other side need not be left alone any more, until there is a
 *   channel again, for ten minutes, and at most six times in these. After a refusal (403, 501) there is no other.
 * - A set-up that a message asked for, and that failed, is a later message's to ask for again.
 */

const FINAL = new Set([403, 501]);
const SETTLING = 100; // ms between two looks at what the last channel left

export class Redialling {
  #clock;
  #dial;
  #timers = new Set();
  #isClosed = false;

  /** @param dial(peer) sets a connection up, unless it is no time for one */
  constructor(clock, dial) {
    [this.#clock, this.#dial] = [clock, dial];
  }

  /** A live connection has ended. */
  lost(peer, event) {
    peer.isLost = peer.isRequester && !NO_RETURN.has(event);
    peer.lostAt = this.#clock.now();
    this.#plan(peer, 0);
  }

  /** A set-up has failed, or is not begun; its runtime is left alone until then. `code` is that of a refusal. */
  failed(peer, until, code) {
    if (FINAL.has(code)) peer.isLost = false;
    this.#plan(peer, until - this.#clock.now());
  }

  /** Dial no more. */
  close() {
    this.#isClosed = true;
    for (const timer of this.#timers) this.#clock.clearTimeout(timer);
    this.#timers.clear();
  }

  /** Plan the next try, which is not before `least` ms. */
  #plan(peer, least) {
    if (!peer.isLost || peer.hasRedial || this.#isClosed) return;
    const [now, jitter] = [this.#clock.now(), Math.random()];
    const next = peer.redials.next(now, jitter);
    const delay = Math.max(next, least && least + jitter * 1_000);
    if (next === null || now + delay - peer.lostAt > peer.redials.span) {
      peer.isLost = false;
      peer.enter("exhausted");
      return;
    }
    peer.hasRedial = true;
    this.#in(delay, peer);
  }

  #in(delay, peer) {
    const timer = this.#clock.setTimeout(() => {
      this.#timers.delete(timer);
      if (peer.isOnChannel && !peer.link.isOpen) {
        this.#in(SETTLING, peer); // what the last channel left is settled within the time of a resume
        return;
      }
      peer.hasRedial = false;
      if (peer.isLost) this.#dial(peer);
    }, delay);
    this.#timers.add(timer);
  }
}
