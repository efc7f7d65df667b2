/**
 * The line between a runtime of the example and the node: shows each frame that passes, and can be
 * cut and mended. Its `Socket` stands in for the WebSocket class that the stub is given.
 *
 * onFrame(isOut, message, request)   request: what a response answers, if it passed here
 */

export class Line {
  #isCut = false;
  #socket = null;
  #asked = new Map();
  #onFrame;
  #token;

  /** With an access token the line says who connects: browsers can do so by subprotocols only. */
  constructor(onFrame, token = "") {
    this.#onFrame = onFrame;
    this.#token = token;
    const line = this;
    this.Socket = class {
      constructor(url) {
        return line.#open(url);
      }
    };
  }

  get isCut() {
    return this.#isCut;
  }

  cut() {
    this.#isCut = true;
    this.#socket?.close(4000, "The line is cut.");
  }

  mend() {
    this.#isCut = false;
  }

  #open(url) {
    if (this.#isCut) return new DeadSocket();
    const said = this.#token ? ["msgnode", `bearer.${this.#token}`] : [];
    const socket = new WebSocket(url, said);
    const send = socket.send.bind(socket);
    socket.send = (text) => {
      this.#see(true, text);
      send(text);
    };
    socket.addEventListener("message", (event) => this.#see(false, event.data));
    this.#socket = socket;
    return socket;
  }

  #see(isOut, text) {
    const message = JSON.parse(text);
    const isAnswer = message.type === "response";
    const key = `${isAnswer ? message.to : message.from}#${message.id}`;
    if (isOut && !isAnswer) this.#asked.set(key, message);
    const request = isAnswer && !isOut ? this.#asked.get(key) : undefined;
    if (request) this.#asked.delete(key);
    this.#onFrame(isOut, message, request);
  }
}

/** A socket on a cut line: it closes before it opens. */
class DeadSocket {
  readyState = 3;
  bufferedAmount = 0;

  constructor() {
    queueMicrotask(() => this.onclose?.({ code: 1006, reason: "The line is cut." }));
  }

  send() {}
  close() {}
}
