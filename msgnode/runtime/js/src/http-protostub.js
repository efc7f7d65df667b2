/**
 * The protostub of a Messaging Node for runtimes that can hold no WebSocket: the same stub, over HTTP.
 *
 * What protostub.js takes for a WebSocket is here a session of the node's `/device/v1` (see
 * docs/connectors.md). `config.url` is that address, such as "https://example.org/device/v1".
 *
 * Rules
 * - Frames go up in order, one request at a time, as many in each as have come. A request that was not
 *   answered is repeated under the same Idempotency-Key, so that what it says is carried once.
 * - What comes down, responses included, is one stream of events. After a break it goes on behind the
 *   last event that came.
 * - The token of the session stands in the header Authorization, never in a URL.
 */

import MessagingNodeProtoStub from "./protostub.js";

const HTTP_SESSION = "mn:/session";
const MOST_IN_A_REQUEST = 100; // messages
const REQUEST_SIZE = 200_000; // characters of a list, if it is one
const REQUEST_TIME = 60_000; // ms until a request is taken for lost
const STREAM_SILENCE = 45_000; // ms without a sign of life of the stream
const TRIES = 4; // of a request that is not answered
const TRY_EVERY = 1_000; // ms
const REFUSED = 4403;
const LOST = 1006;
const positions = new Map(); // token -> id of the last event that came

class HttpSocket {
  readyState = 0;
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;

  #url;
  #runtimeURL = "";
  #token = "";
  #queue = []; // texts that wait for a request
  #unsent = 0; // characters that no request has brought to the node
  #isPosting = false;
  #isLeaving = false; // a `close` has been asked for
  #abort = new AbortController();
  #timers = new Set();

  constructor(url) {
    this.#url = new URL(url).href.replace(/\/$/, "");
    if (!/^https?:/.test(this.#url)) throw new SyntaxError(`${url} is no URL of HTTP`);
    queueMicrotask(() => {
      if (this.readyState !== 0) return;
      this.readyState = 1;
      this.onopen?.();
    });
  }

  get bufferedAmount() {
    return this.#unsent;
  }

  send(text) {
    const frame = JSON.parse(text);
    if (frame.to === HTTP_SESSION) {
      this.#session(frame).catch(() => this.#end(LOST, "The node cannot be reached."));
      return;
    }
    this.#queue.push(text);
    this.#unsent += text.length;
    this.#post();
  }

  close(code = 1000, reason = "") {
    this.#end(code, reason);
  }

  // --- the session --------------------------------------------------------------------------------

  async #session({ id, type, from, body }) {
    if (type === "close") {
      this.#isLeaving = true;
      this.#post();
      return;
    }
    const end = from.lastIndexOf("/");
    const isResumed = type === "re-open";
    this.#runtimeURL = isResumed ? from.slice(0, end) : from;
    if (isResumed) this.#token = from.slice(end + 1);
    const answer = isResumed
      ? await this.#ask("PUT", "/sessions/current", { token: this.#token })
      : await this.#ask("POST", "/sessions", {
          token: proofIn(body?.identity),
          body: { runtimeURL: from },
        });
    const told = await answer.json();
    if (!answer.ok) {
      this.#answer(id, from, { code: answer.status, desc: told.detail, description: told.detail });
      return;
    }
    const isNew = told.token !== this.#token;
    if (isNew) positions.delete(this.#token);
    this.#token = told.token;
    this.#listen();
    this.#answer(id, from, isNew ? { code: 200, runtimeToken: told.token } : { code: 200 });
  }

  #answer(id, to, body) {
    this.#receive({ id, type: "response", from: HTTP_SESSION, to, body });
  }

  async #leave() {
    await this.#ask("DELETE", "/sessions/current", { token: this.#token }).catch(() => {});
    positions.delete(this.#token);
    this.#end(1000, "closed");
  }

  // --- up -----------------------------------------------------------------------------------------

  async #post() {
    if (this.#isPosting || this.readyState !== 1) return;
    this.#isPosting = true;
    while (this.#queue.length && this.readyState === 1) {
      const texts = this.#batch();
      const answer = await this.#carry(`[${texts.join(",")}]`);
      if (!answer) break;
      this.#unsent -= texts.reduce((sum, text) => sum + text.length, 0);
      this.#outcomes(texts, answer);
    }
    this.#isPosting = false;
    if (this.#isLeaving && this.readyState === 1) await this.#leave();
  }

  #batch() {
    let size = 0;
    let count = 0;
    while (count < this.#queue.length && count < MOST_IN_A_REQUEST) {
      size += this.#queue[count].length;
      if (count && size > REQUEST_SIZE) break;
      count += 1;
    }
    return this.#queue.splice(0, count);
  }

  /** What came of each message, in order; null if the node could not be asked. */
  async #carry(body) {
    const key = crypto.randomUUID();
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      try {
        const answer = await this.#ask("POST", "/messages?responses=events", {
          token: this.#token,
          text: body,
          key,
        });
        if (answer.status === 207) return await answer.json();
        const told = await answer.json();
        if (answer.status === 401) this.#end(LOST, told.detail);
        else if (answer.status === 403) this.#end(REFUSED, told.detail);
        else if (answer.status !== 429 && answer.status < 500)
          return { code: answer.status, detail: told.detail };
      } catch {
        // no answer: asked again below
      }
      if (this.readyState !== 1) return null;
      if (attempt < TRIES) await this.#pause(TRY_EVERY * attempt);
    }
    this.#end(LOST, "The node cannot be reached.");
    return null;
  }

  #outcomes(texts, answer) {
    texts.forEach((text, at) => {
      const { code, detail } = Array.isArray(answer) ? (answer[at] ?? {}) : answer;
      if (code >= 400) {
        const { id, type, from, to } = JSON.parse(text);
        const said = { code, desc: detail, description: detail };
        const isAnswerable = id !== undefined && type !== "response";
        if (isAnswerable)
          this.#receive({ id, type: "response", from: [to].flat()[0], to: from, body: said });
      }
    });
  }

  // --- down ---------------------------------------------------------------------------------------

  async #listen() {
    let code = LOST;
    let reason = "The stream of events ended.";
    try {
      const last = positions.get(this.#token);
      const headers = { ...this.#headers(this.#token), Accept: "text/event-stream" };
      if (last) headers["Last-Event-ID"] = last;
      const answer = await fetch(`${this.#url}/events`, {
        headers,
        cache: "no-store",
        signal: this.#abort.signal,
      });
      if (!answer.ok) throw new Error((await answer.json()).detail);
      for await (const { name, id, data } of this.#events(answer.body)) {
        if (id) this.#isAt(id);
        if (name === "message") this.#receive(JSON.parse(data));
        else if (name === "gap") this.#gap();
        else if (name === "close") {
          ({ code, reason } = JSON.parse(data));
          positions.delete(this.#token); // all that was said before has come
          break;
        }
      }
    } catch (error) {
      reason = error.message;
    }
    this.#end(code, reason);
  }

  async *#events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let event = {};
    for (;;) {
      const alarm = this.#after(STREAM_SILENCE, () => this.#abort.abort());
      const { value, done } = await reader.read();
      this.#stopTimer(alarm);
      if (done) return;
      const lines = (text + value).split("\n");
      text = lines.pop();
      for (const line of lines) {
        const [field, said] = [
          line.slice(0, line.indexOf(":")),
          line.slice(line.indexOf(":") + 1).trimStart(),
        ];
        if (line === "") {
          if (event.name) yield event;
          event = {};
        } else if (field === "event") event.name = said;
        else if (field === "data") event.data = said;
        else if (field === "id") event.id = said;
      }
    }
  }

  #isAt(id) {
    positions.delete(this.#token);
    positions.set(this.#token, id);
    if (positions.size > 100) positions.delete(positions.keys().next().value);
  }

  #gap() {
    const to = `${this.#runtimeURL}/status`;
    this.#receive({ id: 0, type: "update", from: this.#runtimeURL, to, body: { value: "gap" } });
  }

  #receive(message) {
    if (this.readyState === 1) this.onmessage?.({ data: JSON.stringify(message) });
  }

  // --- requests -----------------------------------------------------------------------------------

  #headers(token) {
    return token ? { Authorization: `Bearer ${token}` } : {};
  }

  #ask(method, path, { token, body, text, key }) {
    const headers = { ...this.#headers(token), "Content-Type": "application/json" };
    if (key) headers["Idempotency-Key"] = key;
    const signals = [this.#abort.signal, AbortSignal.timeout(REQUEST_TIME)];
    const content = body ? JSON.stringify(body) : text;
    return fetch(this.#url + path, {
      method,
      headers,
      body: content,
      cache: "no-store",
      signal: AbortSignal.any(signals),
    });
  }

  #end(code, reason) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.#timers.forEach((timer) => clearTimeout(timer));
    this.#abort.abort();
    queueMicrotask(() => this.onclose?.({ code, reason }));
  }

  #pause(milliseconds) {
    return new Promise((resolve) => {
      this.#after(milliseconds, resolve);
      this.#abort.signal.addEventListener("abort", resolve, { once: true });
    });
  }

  #after(milliseconds, call) {
    const timer = setTimeout(call, milliseconds);
    this.#timers.add(timer);
    return timer;
  }

  #stopTimer(timer) {
    clearTimeout(timer);
    this.#timers.delete(timer);
  }
}

/** The token in an identity as a runtime gives it. */
function proofIn(identity) {
  if (typeof identity === "string") return identity;
  return identity?.access_token ?? identity?.assertion ?? identity?.token ?? "";
}

MessagingNodeProtoStub.Socket = HttpSocket;

export { HttpSocket };
