/**
 * The protostub of a Messaging Node: links the bus of a runtime with the node's WebSocket `/ws`.
 *
 * One ES module without dependencies, for browsers and Node.js. How to load it:
 *
 *   activate(stubURL, bus, config)                    -> { name, instance }
 *   new Stub()._start(stubURL, bus, config, factory)     where Stub is the default export
 *
 * config   url         the node's WebSocket, such as "wss://example.org/ws"
 *          runtimeURL  the address of the runtime
 *          WebSocket   a WebSocket class; without it the global one is used
 *          and any of DEFAULTS
 *
 * Rules
 * - It listens on `*` of the bus. The first message that goes out connects it.
 * - Status events go to `<stubURL>/status` of the bus and never to the node:
 *   created -> in-progress -> live <-> disconnected, and failed where coming back is no use.
 *   `gap` is no state: it says that messages were lost or that the node lost the session.
 * - While there is no session, messages wait in order, up to `maxQueue` characters. One that finds
 *   no room is never dropped in silence: a request is answered 503, anything else is a `gap`.
 * - A lost session is opened again with its token, so that addresses, subscriptions and what
 *   waited at the node come back. Delays double from `minDelay` to `maxDelay`, with jitter.
 * - If the node does not take the identity any more, the session waits `identityTimeout` for a newer one, `in-progress`.
 * - To a node that does not know the session any more the subscriptions it had granted are sent again,
 *   100 addresses a request, before anything else. What it refuses then is a `gap`.
 * - `via` keeps messages from going round: what came in through this stub does not go out through
 *   it, and what went out through it is not taken in again.
 */

export const NAME = "MessagingNodeProtoStub";

export const DEFAULTS = Object.freeze({
  connectTimeout: 10_000, // ms until the socket is open
  replyTimeout: 3_000, // ms until mn:/session has answered
  identityTimeout: 10_000, // ms that a session whose identity has ended waits for a newer one
  minDelay: 250, // ms before the first return
  maxDelay: 30_000, // ms between two tries, at most
  stagger: 3_000, // ms over which a return is spread if the node restarts and names no time
  stableAfter: 5_000, // ms of being live after which delays begin anew
  maxBuffer: 1_000_000, // bytes given to the socket that have not left; more waits here
  maxQueue: 4_194_304, // characters that wait here
  maxFrame: 1_048_576, // bytes of the largest message the node takes
});

const SESSION = "mn:/session";
const OVERHEAD = 64; // characters a waiting message counts besides its text
const HALF = /(?:^|[^\\])(?:\\\\)*\\ud[89a-f]/; // of a surrogate pair, escaped: no node reads it
const DRAIN_EVERY = 20; // ms
const NO_WEBSOCKET =
  "no WebSocket class here: start Node.js 20 with --experimental-websocket, or give one as `WebSocket`";
const CLOSE_TIME = 100; // ms after an error until the close that says more; in Node.js 20 none follows
const NODE_SM = /^domain:\/\/msg-node\.[^/]+\/sm$/; // the node's subscription manager
const MAX_CLAIMS = 1_000; // subscriptions whose answer is awaited
const MAX_HELD = 10_000; // addresses that are announced again

const RETRY_AFTER = /\bretryAfter=(\d+)/; // in the reason of a close
const LONGEST_SPREAD = 300_000; // ms, whatever a node says

/** What a close code asks of us. A code that is not here: come back after the usual delay. */
const CLOSE_CODES = {
  1006: { text: "The connection was lost." },
  1009: { text: "A message was too large for the node." },
  3001: { text: "The node restarts.", staggered: true },
  3008: { text: "Messages came faster than they were read." },
  4400: { text: "The node could not read a frame." },
  4401: { text: "No session was opened in time." },
  4403: { text: "The node refuses this runtime.", final: true },
  4409: { text: "The session goes on over another connection.", final: true },
  4413: { text: "A message was too large for the node." },
  4429: { text: "The node has no room for another session at the moment." },
};

/** Milliseconds before try number `attempt` (from 0): doubling, and between half and all of it. */
export function backOff(attempt, settings = DEFAULTS, random = Math.random) {
  const whole = Math.min(settings.maxDelay, settings.minDelay * 2 ** Math.min(attempt, 30));
  return whole * (0.5 + random() / 2);
}

/** Milliseconds within which to come back to a node that restarts: what it says, else `stagger`. */
export function spread(reason, settings = DEFAULTS) {
  const told = RETRY_AFTER.exec(reason)?.[1];
  return told ? Math.min(told * 1000, LONGEST_SPREAD) : settings.stagger;
}

/** The code of an answer: 500 for one that has none that can be read. */
function codeOf(body) {
  const code = body?.code;
  const isNumber = typeof code === "number" || typeof code === "string";
  return isNumber && /^[1-9]\d\d$/.test(code) ? Number(code) : 500;
}

/** The pre-2019 way of loading. */
export function activate(stubURL, bus, config) {
  const instance = new MessagingNodeProtoStub();
  instance._start(stubURL, bus, config);
  return { name: NAME, instance };
}

export default class MessagingNodeProtoStub {
  static activate = activate;
  static Socket = undefined; // a class in the place of the global WebSocket

  #stubURL = "";
  #bus = null;
  #config = {};
  #mark = ""; // `via` of what goes out: a stub URL that two runtimes share must not silence them
  #state = "";
  #identity = undefined;
  #sessionURL = ""; // <runtimeURL>/<token>; "" while there is no session to come back to
  #socket = null;
  #isWanted = false;
  #ids = 0;
  #handshake = null; // { id, type, isAfresh } of the session frame that waits for its answer
  #attempt = 0;
  #liveSince = 0;
  #timer = null;
  #drain = null;
  #queue = []; // { frame, message }
  #queued = 0; // characters
  #claims = new Map(); // sender and id -> subscription that waits for its answer
  #held = new Map(); // address -> {from, to, source} of the subscription that the node granted
  #lost = 0; // messages that found no room since the last `gap`
  #waiting = []; // resolvers of connect()
  #onOnline = () => this.#isWanted && !this.#socket && this.#dial();

  get name() {
    return NAME;
  }

  get config() {
    return this.#config;
  }

  /** created, in-progress, live, disconnected or failed. */
  get state() {
    return this.#state;
  }

  /** The 2019 way of loading. */
  _start(stubURL, bus, config, _factory) {
    this.#stubURL = stubURL;
    this.#bus = bus;
    this.#config = { ...DEFAULTS, ...config };
    this.#mark = `${stubURL}/${Math.random().toString(36).slice(2, 10)}`;
    bus.addListener("*", (message) => this.#send(message));
    this.#enter("created");
  }

  /**
   * Open the session, now. Resolves, and never rejects, with the state that follows: "live",
   * "failed" (a status event says why), or "disconnected" if disconnect() came first.
   */
  connect(identity) {
    if (identity !== undefined) this.#identity = identity;
    if (this.#state === "live") return Promise.resolve("live");
    const settled = new Promise((resolve) => this.#waiting.push(resolve));
    if (!this.#isWanted) {
      this.#isWanted = true;
      this.#attempt = 0;
      globalThis.addEventListener?.("online", this.#onOnline);
      this.#enter("in-progress");
    }
    if (!this.#socket) this.#dial();
    return settled;
  }

  /** Close the session for good: the node frees its addresses. Resolves when the socket is closed. */
  disconnect() {
    const socket = this.#socket;
    const isLive = this.#state === "live";
    if (isLive) while (this.#queue.length) socket.send(this.#take().frame);
    if (isLive && this.#sessionURL) this.#sessionFrame(socket, "close");
    this.#socket = null;
    this.#stop("disconnected", 503, "The stub was disconnected.");
    if (!socket || socket.readyState === 3) return Promise.resolve();
    return new Promise((resolve) => {
      const impatience = setTimeout(
        () => socket.close(1000),
        isLive ? this.#config.replyTimeout : 0,
      );
      socket.onmessage = null;
      socket.onopen = () => socket.close(1000);
      socket.onerror = () => {};
      socket.onclose = () => {
        clearTimeout(impatience);
        resolve();
      };
    });
  }

  // --- the socket -------------------------------------------------------------------------------

  #dial() {
    clearTimeout(this.#timer);
    const Socket = this.#config.WebSocket ?? MessagingNodeProtoStub.Socket ?? globalThis.WebSocket;
    let socket;
    try {
      if (!Socket) throw new Error(NO_WEBSOCKET);
      socket = new Socket(this.#config.url);
    } catch (error) {
      this.#stop("failed", 503, `The stub cannot connect: ${error.message}`);
      return;
    }
    this.#socket = socket;
    this.#limit(this.#config.connectTimeout, "The node cannot be reached: no answer in time.");
    socket.onopen = () => {
      if (socket !== this.#socket) return;
      this.#limit(this.#config.replyTimeout, `Timeout from ${SESSION}`);
      this.#open();
    };
    socket.onmessage = (event) => socket === this.#socket && this.#received(event.data);
    socket.onerror = () =>
      socket === this.#socket && this.#limit(CLOSE_TIME, CLOSE_CODES[1006].text);
    socket.onclose = (event) => socket === this.#socket && this.#closed(event.code, event.reason);
  }

  /** Give up the socket unless the next step of the handshake comes in time. */
  #limit(milliseconds, text) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#abandon(text), milliseconds);
  }

  #abandon(text) {
    const socket = this.#socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    this.#closed(0, text);
  }

  #closed(code, reason) {
    const { text, staggered, final } = CLOSE_CODES[code] ?? CLOSE_CODES[1006];
    const unsent = this.#state === "live" && this.#socket.bufferedAmount > 0;
    this.#socket = null;
    this.#handshake = null;
    clearTimeout(this.#timer);
    clearTimeout(this.#drain);
    if (final) {
      this.#stop("failed", 403, reason || text);
      return;
    }
    if (this.#liveSince && Date.now() - this.#liveSince > this.#config.stableAfter)
      this.#attempt = 0;
    this.#liveSince = 0;
    this.#enter("disconnected", reason || text);
    if (unsent) this.#gap("Messages were on their way out when the connection broke.");
    const within = staggered ? spread(reason, this.#config) : 0;
    const delay = Math.random() * within + backOff(this.#attempt++, this.#config);
    this.#timer = setTimeout(() => this.#dial(), delay);
  }

  /** Leave the connection be until connect() is called; nothing waits any longer. */
  #stop(state, code, text) {
    this.#isWanted = false;
    this.#sessionURL = "";
    this.#handshake = null;
    this.#liveSince = 0;
    clearTimeout(this.#timer);
    clearTimeout(this.#drain);
    globalThis.removeEventListener?.("online", this.#onOnline);
    this.#enter(state, text);
    while (this.#queue.length) this.#refuse(this.#take().message, code, text);
    this.#claims.clear();
    if (state === "disconnected") this.#held.clear();
    this.#settle(state);
  }

  // --- the session --------------------------------------------------------------------------------

  #open(isAfresh = false) {
    const type = this.#sessionURL ? "re-open" : "open";
    this.#handshake = { type, isAfresh, id: this.#sessionFrame(this.#socket, type) };
  }

  #sessionFrame(socket, type) {
    const id = ++this.#ids;
    const frame = { id, type, from: this.#sessionURL || this.#config.runtimeURL, to: SESSION };
    if (this.#identity !== undefined && type !== "close") frame.body = { identity: this.#identity };
    socket.send(JSON.stringify(frame));
    return id;
  }

  #answered({ type, id, body: told }) {
    const body = told ?? {};
    const asked = this.#handshake;
    if (type !== "response" || !asked || id !== asked.id) return;
    this.#handshake = null;
    const code = codeOf(body);
    const text = body.desc ?? body.description ?? `The node answered ${body.code}.`;
    if (code === 200) {
      if (body.runtimeToken) this.#sessionURL = `${this.#config.runtimeURL}/${body.runtimeToken}`;
      const isLost = asked.isAfresh || (asked.type === "re-open" && Boolean(body.runtimeToken));
      this.#begin(isLost, isLost || asked.type === "open");
    } else if (asked.type === "re-open" && code !== 401 && code !== 403 && code !== 503) {
      this.#sessionURL = ""; // a node that knows the session no longer: begin anew
      this.#open(true);
    } else if (code === 429 || code >= 500) {
      this.#abandon(text);
    } else {
      const socket = this.#socket;
      this.#socket = null;
      if (code === 401 && asked.type === "re-open" && this.#identity !== undefined) {
        clearTimeout(this.#timer);
        this.#timer = setTimeout(
          () => this.#stop("failed", code, text),
          this.#config.identityTimeout,
        );
        this.#enter("in-progress", text);
      } else this.#stop("failed", code, text);
      socket.close(1000);
    }
  }

  #begin(isLost, isNew) {
    clearTimeout(this.#timer);
    this.#liveSince = Date.now();
    this.#enter("live");
    if (isNew) this.#announce();
    if (isLost) this.#gap("The node did not know the session: what it held is gone.");
    this.#flush();
    this.#settle("live");
  }

  // --- what the node holds for the runtime ----------------------------------------------------------

  /** Note a subscription that goes out; the node's answer decides. */
  #asks(message) {
    const { type, from, to, id } = message;
    const isClaim = (type === "subscribe" || type === "unsubscribe") && NODE_SM.test(to);
    if (!isClaim) return;
    if (this.#claims.size >= MAX_CLAIMS) this.#claims.delete(this.#claims.keys().next().value);
    this.#claims.set(`${from}\n${id}`, message);
  }

  /** Note the node's answer; whether it is to an announcement of ours, which is nobody else's. */
  #granted({ to, id, body }) {
    const key = `${to}\n${id}`;
    const claim = this.#claims.get(key);
    const code = codeOf(body);
    if (!claim || code < 200) return false;
    this.#claims.delete(key);
    const { type, from, to: sm, body: asked = {}, isAgain } = claim;
    const { source, resources = [], resource = [] } = asked;
    const named = [resources, resource].flat().filter((each) => typeof each === "string");
    for (const each of named) {
      if (type === "unsubscribe" || (isAgain && code !== 200)) this.#held.delete(each);
      else if (code === 200 && this.#held.size < MAX_HELD)
        this.#held.set(each, { from, to: sm, source });
    }
    if (isAgain && code !== 200)
      this.#gap(`The node answers ${code} to ${named.length} addresses that it held before.`);
    return Boolean(isAgain);
  }

  /** Tell a node that has forgotten us what it held, before anything else goes out. */
  #announce() {
    const batches = new Map();
    for (const [address, { from, to, source }] of this.#held) {
      const key = JSON.stringify([from, to, source]);
      batches.set(key, [...(batches.get(key) ?? []), address]);
    }
    for (const [key, addresses] of batches) {
      const [from, to, source] = JSON.parse(key);
      while (addresses.length) {
        const id = `${this.#mark}/again/${++this.#ids}`;
        const body = {
          resources: addresses.splice(0, 100),
          ...(source ? { source } : {}),
          via: this.#mark,
        };
        const frame = { id, type: "subscribe", from, to, body };
        this.#claims.set(`${from}\n${id}`, { ...frame, isAgain: true });
        this.#socket.send(JSON.stringify(frame));
      }
    }
  }

  // --- messages -----------------------------------------------------------------------------------

  #received(text) {
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return; // not ours to answer
    }
    if (message === null || typeof message !== "object") return;
    if (message.from === SESSION) {
      this.#answered(message);
      return;
    }
    const body = message.body ?? {};
    if (typeof body !== "object" || Array.isArray(body)) return; // nodes refuse it
    if (body.via === this.#mark || body.via === this.#stubURL) return; // our own, come back
    if (message.type === "response" && this.#claims.size && this.#granted(message)) return;
    this.#post({ ...message, body: { ...body, via: this.#stubURL } });
    if (body.value === "gap" && message.to === `${this.#config.runtimeURL}/status`) {
      this.#gap("The node could not keep all messages while the runtime was away.");
    }
  }

  #send(message) {
    const body = message.body || {};
    if (typeof body !== "object" || Array.isArray(body)) {
      this.#refuse(message, 400, "The field `body` is not an object.");
      return;
    }
    if (message.to === `${this.#stubURL}/status` || body.via === this.#stubURL) return;
    const frame = JSON.stringify({ ...message, body: { ...body, via: this.#mark } });
    const { maxFrame, maxQueue } = this.#config;
    if (frame.length * 3 > maxFrame && new TextEncoder().encode(frame).length > maxFrame) {
      this.#refuse(message, 413, `The message is larger than ${maxFrame} bytes.`);
    } else if (frame.includes("\\ud") && HALF.test(frame)) {
      this.#refuse(message, 400, "The message has half of a surrogate pair.");
    } else if (this.#state === "failed") {
      this.#refuse(message, 503, "The stub has failed: see its status.");
    } else if (this.#queued + frame.length + OVERHEAD > maxQueue) {
      this.#refuse(message, 503, "Too many messages wait for the node.");
    } else {
      this.#asks(message);
      this.#queue.push({ frame, message });
      this.#queued += frame.length + OVERHEAD;
      if (this.#state === "live") this.#flush();
      else if (!this.#isWanted) this.connect();
    }
  }

  #take() {
    const next = this.#queue.shift();
    this.#queued -= next.frame.length + OVERHEAD;
    return next;
  }

  /** Send what waits, as far as the socket takes it. */
  #flush() {
    clearTimeout(this.#drain);
    const socket = this.#socket;
    while (this.#queue.length && socket.readyState === 1) {
      if (socket.bufferedAmount >= this.#config.maxBuffer) {
        this.#drain = setTimeout(() => this.#flush(), DRAIN_EVERY);
        return;
      }
      socket.send(this.#take().frame);
    }
    if (this.#lost > 1) this.#gap(`${this.#lost} messages did not go out.`);
    this.#lost = 0;
  }

  /** Say that a message does not go out: to who asked, or else to all. */
  #refuse({ id, type, from, to }, code, text) {
    const isEvent = type === "update" && /\/(changes|status)$/.test(to);
    if (type === "response" || isEvent || id === undefined) {
      this.#lost += 1;
      if (this.#lost === 1) this.#gap(text);
      return;
    }
    const body = { code, desc: text, description: text, via: this.#stubURL };
    this.#post({ id, type: "response", from: Array.isArray(to) ? to[0] : to, to: from, body });
  }

  // --- status -------------------------------------------------------------------------------------

  #enter(state, desc) {
    if (state === this.#state) return;
    this.#state = state;
    this.#say(state, desc);
  }

  #gap(desc) {
    this.#say("gap", desc);
  }

  #say(value, desc) {
    const body = desc ? { value, desc } : { value };
    this.#post({ type: "update", from: this.#stubURL, to: `${this.#stubURL}/status`, body });
  }

  /** Hand a message to the bus. What it refuses, or a listener's fault, ends neither the stub nor the process. */
  #post(message) {
    try {
      this.#bus.postMessage(message);
    } catch (error) {
      console.error("The bus of the stub failed at a message:", error);
    }
  }

  #settle(state) {
    for (const resolve of this.#waiting.splice(0)) resolve(state);
  }
}
