/**
 * Setting connections up, from both sides: dialling another runtime, being dialled by one, and dialling again what was
 * lost.
 *
 * It follows docs/reference/p2p.md, rows 16-25.
 */

import { newId } from "../ids.js";
import { BadDescription, PROTOCOL, RtcConnection } from "./rtc.js";
import { ConnectionObject, RemoteObject, SetUpError } from "./signalling.js";
import { InvitationLimits, Quarantine, plain, runtimeOfHandler, staysRequester } from "./states.js";

const FINAL = new Set([403, 501]); // refusals after which there is no other try
const SETTLING = 100; // ms between two looks at what the last channel left

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
  #bus;
  #signalling;
  #known;
  #newRemote;
  #settings;
  #platform;
  #isClosed = false;
  #limits = new InvitationLimits();
  #quarantine;
  #objects = new Map(); // url -> ConnectionObject
  #awaiting = new Map(); // our requester's URL -> made: who waits for D
  #attempts = new Set();
  #timers = new Set();

  /**
   * @param parts {signalling, known: the KnownRuntimes, newRemote(runtime, handler): one that is known from now on, or null,
   *   settings}
   * @param platform {RTCPeerConnection, qos: gives TURN servers, where the settings ask for some}
   */
  constructor({ signalling, known, newRemote, settings }, platform) {
    [this.#bus, this.#signalling, this.#known, this.#newRemote] = [
      signalling.bus,
      signalling,
      known,
      newRemote,
    ];
    [this.#settings, this.#platform] = [settings, platform];
    this.#quarantine = new Quarantine(settings.timers.quarantine);
  }

  // --- dialling -----------------------------------------------------------------------------------

  /** Set a connection up, unless there is one, or it is no time for one. */
  dial(remote) {
    const isBusy = remote.isSettingUp || remote.dialling !== null;
    if (this.#isClosed || isBusy || remote.link.isOpen || remote.isOnChannel) return;
    const until = this.#quarantine.until(remote.runtime);
    if (until > this.#bus.clock.now()) {
      this.#planAfter(remote, until);
      return;
    }
    const attempt = this.#begin();
    remote.dialling = attempt;
    this.#request(remote, attempt).catch((error) => this.#bus.report("p2p.failed", { error }));
  }

  /** Set a connection up as requester. */
  async #request(remote, attempt) {
    const signalling = this.#signalling;
    remote.begin(true, remote.via, remote.handler);
    const made = {
      epoch: newId().slice(0, 16),
      remote,
      attempt: remote.attempt,
      expires: Date.now() / 1000 + this.#settings.timers.setUp / 1000,
    };
    const answer = new Promise((resolve) => {
      made.takeAnswer = resolve;
    });
    this.#awaiting.set(remote.via, made);
    try {
      this.#signals(remote, remote.handler);
      await attempt.step(this.#connection(made));
      const described = await attempt.step(made.rtc.offer());
      if (!remote.isClaimed) await attempt.step(signalling.claim([remote.via]));
      remote.isClaimed = true;
      this.#object(made, {
        stub: remote.via,
        to: remote.handler,
        runtime: remote.runtime,
        described,
      });
      await attempt.step(made.object.offer(made.expires));
      remote.enter("answered");
      const { url, isField } = await attempt.step(answer);
      if (!isField)
        await attempt.step(signalling.confirm(remote.via, remote.handler, made.epoch, url));
      const answered = isField
        ? this.#observed(made, { url, own: remote.via, kind: "answer" })
        : signalling.described(url, remote.via);
      await attempt.step(made.rtc.accept(await attempt.step(answered)));
      made.observed?.giveCandidates((candidate) => made.rtc.addCandidate(candidate));
      await attempt.step(made.opened);
    } catch (error) {
      if (!(error instanceof SetUpError || error instanceof BadDescription)) throw error;
      if (error.code === 409)
        this.#awaitInvitation(remote); // it invites us, too
      else if (!attempt.isCancelled) this.#failed(remote, error.message, error.code);
    } finally {
      if (remote.dialling === attempt) remote.dialling = null;
      if (this.#awaiting.get(remote.via) === made) this.#awaiting.delete(remote.via);
      this.#end(attempt, made);
    }
  }

  /** The description of the other side's object, whenever it comes. */
  #observed(made, said) {
    made.observed = new RemoteObject(this.#signalling, said);
    return made.observed.description();
  }

  /** The other side's invitation counts; it has the time of a set-up to come about. */
  #awaitInvitation(remote) {
    remote.enter("glare", "glare");
    const { attempt } = remote;
    this.#in(this.#settings.timers.setUp, () => {
      if (remote.attempt === attempt)
        this.#failed(remote, "The other side's invitation did not come about.");
    });
  }

  #failed(remote, text, code = 0) {
    if (!remote.isSettingUp) return;
    const until = this.#quarantine.failed(remote.runtime, this.#bus.clock.now());
    remote.enter("broken", text);
    if (FINAL.has(code)) remote.isLost = false;
    this.#planAfter(remote, until);
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
    made.observed?.free();
    if (made.object) {
      this.#objects.delete(made.object.url);
      made.object.free();
    }
    if (made.isOpen) return;
    if (made.rtc) made.rtc.close();
    else made.release?.();
  }

  #object(made, said) {
    made.object = new ConnectionObject(this.#signalling, {
      url: this.#signalling.newObject(said.stub),
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
        if (!made.remote || made.attempt !== made.remote.attempt) return;
        made.isOpen = true;
        this.#limits.end(made);
        this.#quarantine.lift(made.remote.runtime);
        made.remote.opened(rtc, made.epoch, Boolean(made.observed));
        resolve();
      };
    });
  }

  // --- being dialled ------------------------------------------------------------------------------

  /** Take an invitation. Throws SetUpError. */
  invited(message, invited) {
    const own = this.#bus.runtimeURL;
    const { runtime, isField } = invited;
    this.#checkProtocol(invited);
    const isNamed = isField || runtimeOfHandler(invited.handler) === runtime;
    const isOwnStub = ["", runtime].includes(runtimeOfHandler(invited.stub));
    if (!isNamed || !isOwnStub || plain(own) === plain(runtime)) {
      throw new SetUpError(403, "An invitation names the runtime that it is of.");
    }
    const remote = this.#known.of(runtime, invited.handler);
    const open = [...this.#known].filter((each) => each !== remote && each.link.isOpen).length;
    if (this.#limits.isTooMany(invited, open, this.#bus.clock.now()) || this.#isClosed) {
      throw new SetUpError(429, "This runtime takes no more connections at the moment.");
    }
    if (remote?.dialling && staysRequester(own, runtime)) throw new SetUpError(409, "glare");
    this.#signalling.answer(message, 200);
    const made = { epoch: invited.epoch, remote: null };
    this.#limits.begin(made, invited);
    this.#handle(made, invited).catch((error) => this.#bus.report("p2p.failed", { error }));
  }

  #checkProtocol({ isField }) {
    if (isField && !this.#settings.fieldPeers)
      throw new SetUpError(501, `This runtime sets up connections of ${PROTOCOL} alone.`);
  }

  /** Set a connection up as handler. */
  async #handle(made, invited) {
    const { url, stub, runtime, epoch, handler, isField } = invited;
    const signalling = this.#signalling;
    const attempt = (made.handling = this.#begin());
    try {
      if (!isField) {
        await attempt.step(signalling.confirm(signalling.handler, handler, epoch, url));
        this.#proved(made, invited);
      }
      await attempt.step(this.#connection(made));
      const offered = isField
        ? this.#observed(made, { url, own: signalling.handler, kind: "offer" })
        : signalling.described(url, signalling.handler);
      const described = await attempt.step(made.rtc.answer(await attempt.step(offered)));
      made.observed?.giveCandidates((candidate) => made.rtc.addCandidate(candidate));
      this.#object(made, { stub: signalling.handler, to: stub, runtime, described });
      if (isField) made.object.onRead = () => this.#proved(made, invited).enter("announced");
      await attempt.step(made.object.offer(Date.now() / 1000 + this.#settings.timers.setUp / 1000));
      if (isField) await attempt.step(made.object.read);
      made.remote.enter("announced");
      await attempt.step(made.opened);
    } catch (error) {
      if (!(error instanceof SetUpError || error instanceof BadDescription)) throw error;
      this.#bus.report("p2p.not-handled", { isQuiet: true });
      if (!made.remote && error.code === 404) this.#limits.denied(runtime);
      if (made.remote?.isSettingUp && !attempt.isCancelled) {
        made.remote.enter("broken", error.message);
        this.#plan(made.remote, 0); // it may have come in the place of one that we began
      }
    } finally {
      this.#limits.end(made);
      if (made.remote?.handling === attempt) made.remote.handling = null;
      this.#end(attempt, made);
    }
  }

  /** The inviter is the runtime that he says. Throws SetUpError. */
  #proved(made, { runtime, handler, stub, instance, isField }) {
    const remote =
      this.#known.instance(runtime, instance, handler) ?? this.#newRemote(runtime, handler);
    if (!remote) throw new SetUpError(429, "This runtime knows too many others at the moment.");
    this.#signals(remote, stub);
    // Were each to give way to the other, nothing would be left.
    if (remote.dialling && !isField && staysRequester(this.#bus.runtimeURL, runtime))
      throw new SetUpError(409, "glare");
    if (remote.dialling) {
      remote.dialling.cancel(); // its invitation counts
      remote.dialling = null;
      this.#awaitInvitation(remote);
    }
    remote.handling?.cancel(); // the other side has begun anew
    made.remote = remote;
    remote.instance = instance;
    remote.handler = handler || remote.handler;
    remote.begin(false, this.#signalling.handler, stub);
    made.attempt = remote.attempt;
    remote.handling = made.handling;
    return remote;
  }

  #signals(remote, stub) {
    if (!this.#known.signals(remote, stub))
      throw new SetUpError(403, `${stub} is another runtime's.`);
  }

  /** The other side has answered our invitation. Throws SetUpError. */
  announced(remote, message, invited) {
    this.#checkProtocol(invited);
    const waiting = this.#awaiting.get(message.to);
    const isTheirs = remote && waiting?.remote === remote && waiting.object?.wasRead;
    if (!isTheirs || (!invited.isField && waiting.epoch !== invited.epoch))
      throw new SetUpError(404, "Nobody here waits for this connection.");
    this.#awaiting.delete(message.to);
    this.#signalling.answer(message, 200);
    remote.instance = invited.instance;
    waiting.takeAnswer(invited);
  }

  /** Say whether we made an object. Throws SetUpError. */
  confirm(message, { epoch, resource }) {
    if (this.#objects.get(resource)?.epoch !== epoch)
      throw new SetUpError(404, "This runtime has made no such object.");
    this.#signalling.answer(message, 200);
  }

  // --- dialling again -----------------------------------------------------------------------------

  /** A live connection has ended: it is dialled again, if it is ours to dial. */
  lost(remote) {
    this.#plan(remote, 0);
  }

  /** Plan the next try for when the other side need not be left alone any more. */
  #planAfter(remote, until) {
    this.#plan(remote, until - this.#bus.clock.now());
  }

  /** Plan the next try, which is not before `least` ms. */
  #plan(remote, least) {
    if (!remote.isLost || remote.hasRedial || this.#isClosed) return;
    const [now, jitter] = [this.#bus.clock.now(), Math.random()];
    const next = remote.redials.next(now, jitter);
    const delay = Math.max(next, least && least + jitter * 1_000);
    if (next === null || now + delay - remote.lostAt > remote.redials.span) {
      remote.isLost = false;
      remote.enter("exhausted");
      return;
    }
    remote.hasRedial = true;
    this.#in(delay, () => this.#redial(remote));
  }

  #redial(remote) {
    if (remote.isOnChannel && !remote.link.isOpen) {
      this.#in(SETTLING, () => this.#redial(remote)); // what the last channel left is settled within a resume's time
      return;
    }
    remote.hasRedial = false;
    const last = this.#known.of(remote.runtime);
    const isAnothers = last !== remote && last?.handler === remote.handler; // a newer tab would answer
    if (remote.isLost && !isAnothers) this.dial(remote);
  }

  #in(delay, call) {
    const timer = this.#bus.clock.setTimeout(() => {
      this.#timers.delete(timer);
      call();
    }, delay);
    this.#timers.add(timer);
  }

  /** End what is under way, and begin nothing more. */
  close() {
    this.#isClosed = true;
    for (const attempt of [...this.#attempts]) attempt.cancel();
    for (const timer of this.#timers) this.#bus.clock.clearTimeout(timer);
    this.#timers.clear();
  }
}
