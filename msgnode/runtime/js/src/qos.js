/**
 * runtime.qos: what the network has, and reservations of relayed bandwidth for calls.
 *
 *   const call = await runtime.qos.reserve({ mediaTypes: ["audio", "video"] });
 *   call.onEnded(({ status, reason }) => …);
 *   const connection = new RTCPeerConnection(call.configuration);
 *   await call.release();
 *
 * Rules
 * - It speaks as the runtime, to domain://qos.<domain>; `domain` asks another domain's broker.
 * - A reservation is renewed until it is released or the runtime closes, so that neither it nor its
 *   credential ends under a call; `keep: false` leaves that to the application.
 * - Where there is no broker, iceServers() gives what direct connections need, and does not fail.
 * - Credentials stand in no error and no counter.
 */

import { checkTexts } from "./arguments.js";
import { AnswerError } from "./bus.js";
import { limited } from "./clock.js";
import { errorBody } from "./messages.js";

const RENEW_SHARE = 0.8; // of what is left of a reservation
const RENEW_MOST = 2_400; // s: credentials live an hour at most, and take as long to be of use
const RETRY_LEAST = 2; // s
const CLOSE_TIME = 3_000; // ms that releases have when the runtime closes
const FIELDS = ["iceServers", "iceTransportPolicy"];

/** Bandwidth that is booked for the application, and what RTCPeerConnection takes to use it. */
export class Reservation {
  #qos;
  #keeps;
  #asked;
  #timer;
  #listeners = [];
  #end;

  constructor(qos, domain, value, { keep = true, seconds } = {}) {
    this.#qos = qos;
    this.#keeps = keep;
    this.#asked = seconds;
    this.domain = domain;
    this.#take(value);
  }

  /** {status, reason} once it has ended, undefined while it stands. */
  get ended() {
    return this.#end;
  }

  /** Hear once that it has ended: {status, reason}; at once if it has. */
  onEnded(listener) {
    if (this.#end) listener(this.#end);
    else this.#listeners.push(listener);
  }

  /** How it is now at the broker: state, bytes received and sent, its end. Without a credential. */
  async read() {
    return this.#qos.ask("read", this.domain, { resource: this.#resource });
  }

  /** A later end and a new credential; what runs goes on. */
  async renew(seconds = this.#asked) {
    const value = seconds === undefined ? {} : { seconds };
    this.#take(await this.#qos.ask("update", this.domain, { resource: this.#resource, value }));
  }

  /** Give it back; what runs is ended. Fulfilled too if it has ended already. */
  async release() {
    if (this.#end) return;
    this.#keeps = false;
    this.#qos.clock.clearTimeout(this.#timer);
    try {
      await this.#qos.ask("delete", this.domain, { resource: this.#resource });
    } catch (error) {
      if (error.code !== 404) throw error;
    }
    this.end({ status: "released", reason: "released" });
  }

  /** For Qos: it has ended. */
  end(how) {
    if (this.#end) return;
    this.#end = how;
    this.#qos.clock.clearTimeout(this.#timer);
    this.#qos.forget(this);
    for (const listener of this.#listeners.splice(0)) this.#qos.call(listener, how);
  }

  get #resource() {
    return `/reservations/${this.id}`;
  }

  #take(value) {
    this.id = value.reservationId;
    this.class = value.class;
    this.bitrate = value.bitrate;
    this.expires = value.expires;
    this.configuration = Object.fromEntries(
      FIELDS.filter((name) => name in value).map((name) => [name, value[name]]),
    );
    const left = Number.isFinite(value.seconds) ? value.seconds : RENEW_MOST;
    if (!this.#end && this.#keeps) this.#renewIn(Math.min(left * RENEW_SHARE, RENEW_MOST), left);
  }

  #renewIn(seconds, left) {
    const { clock } = this.#qos;
    clock.clearTimeout(this.#timer);
    this.#timer = clock.setTimeout(() => this.#keep(left - seconds), seconds * 1000);
  }

  /** Renew, and while that fails try again until its end is reached. */
  async #keep(left) {
    try {
      await this.renew();
    } catch (error) {
      if (this.#end || !this.#keeps) return;
      if (error.code === 404 || error.code === 403)
        this.end({ status: "ended", reason: error.message });
      else if (left <= 0) this.end({ status: "ended", reason: "expired" });
      else this.#renewIn(Math.max(RETRY_LEAST, left / 4), left);
    }
  }
}

export class Qos {
  #bus;
  #url;
  #domain;
  #open = new Set();
  #heard = null;
  #isClosed = false;

  /** @param runtime {bus, url, domain} */
  constructor({ bus, url, domain }) {
    this.#bus = bus;
    this.#url = url;
    this.#domain = domain;
    this.clock = bus.clock;
  }

  /** What is there: classes with capacity, booked, free, servers; with `cspId` its quota. */
  async inquire({ domain = this.#domain, ...criteria } = {}) {
    return this.ask("read", domain, { resource: "/resources", criteria });
  }

  /**
   * Reserve for a call.
   *
   * @param order {mediaTypes or flows or class, bitrate, seconds, cspId, clientName, sessionId,
   *   near, keep, domain}
   * @returns a Reservation
   * @throws AnswerError
   */
  async reserve({ mediaTypes, keep, domain = this.#domain, ...value } = {}) {
    if (mediaTypes !== undefined) checkTexts("mediaTypes", mediaTypes);
    if (mediaTypes) value.flows = mediaTypes.map((mediaType) => ({ mediaType }));
    const answer = await this.ask("create", domain, { resource: "/reservations", value });
    const reservation = new Reservation(this, domain, answer, { keep, seconds: value.seconds });
    if (this.#isClosed) {
      await reservation.release();
      throw new AnswerError(errorBody(503, "The runtime was closed."), `domain://qos.${domain}`);
    }
    this.#open.add(reservation);
    this.#heard ??= this.#bus.addListener(this.#url, (message) => this.#hear(message));
    return reservation;
  }

  /** The reservations of this runtime's user at the broker, as it knows them. */
  async reservations(domain = this.#domain) {
    return this.ask("read", domain, { resource: "/reservations" });
  }

  /**
   * A configuration for RTCPeerConnection, for connections that are relayed only where they must be.
   *
   * @param order as reserve() takes it; a flow of data if it names none
   * @param fallback the ICE servers where none can be reserved
   * @returns {configuration, reservation: null without one, error: why, release()}
   */
  async iceServers(order = {}, fallback = []) {
    const named = order.mediaTypes ?? order.flows ?? order.class;
    try {
      const reservation = await this.reserve(
        named === undefined ? { ...order, mediaTypes: ["data"] } : order,
      );
      const { iceServers } = reservation.configuration;
      const configuration = { iceServers: [...iceServers, ...fallback], iceTransportPolicy: "all" };
      return { configuration, reservation, error: null, release: () => reservation.release() };
    } catch (error) {
      if (!(error instanceof AnswerError)) throw error;
      this.#bus.report("qos.none", { isQuiet: true });
      const configuration = { iceServers: [...fallback], iceTransportPolicy: "all" };
      return { configuration, reservation: null, error, release: async () => {} };
    }
  }

  /** Release what there is, in 3 s; what cannot be told ends at the broker by itself. */
  async close() {
    this.#isClosed = true;
    const all = [...this.#open];
    const released = Promise.allSettled(all.map((each) => each.release()));
    await limited(released, CLOSE_TIME, () => new Error("late"), this.clock).catch(() => {});
    for (const each of all) each.end({ status: "ended", reason: "closed" });
  }

  // --- for Reservation ----------------------------------------------------------------------------

  async ask(type, domain, body) {
    const answer = await this.#bus.request({
      type,
      from: this.#url,
      to: `domain://qos.${domain}`,
      body,
    });
    return answer.value;
  }

  call(listener, how) {
    this.#bus.call(listener, how);
  }

  forget(reservation) {
    this.#open.delete(reservation);
    if (this.#open.size) return;
    this.#heard?.remove();
    this.#heard = null;
  }

  /** The broker tells of ends. Any other request to the runtime itself finds nobody, as without this. */
  #hear(message) {
    const { type, from, body } = message;
    const [mine] = [...this.#open].filter(
      ({ id, domain }) =>
        from === `domain://qos.${domain}` && body?.resource === `/reservations/${id}`,
    );
    if (type === "update" && mine && body.attribute === "status") {
      mine.end({ status: String(body.value), reason: String(body.reason ?? body.value) });
    } else if (type !== "response" && this.#bus.listenersOf(this.#url).length === 1) {
      this.#bus.refuse(message, 404, `Nobody listens to ${this.#url} in this runtime.`);
    }
  }
}
