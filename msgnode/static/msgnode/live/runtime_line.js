/**
 * A runtime of the playground: its socket as the protocol has it, frame by frame, nothing between.
 *
 * The session token stays here: what is composed says `<token>`, which is filled in as the frame goes
 * out and cut out of what is shown.
 */

export const TOKEN = "<token>";
const SESSION = "mn:/session";

export class RuntimeLine {
  state = "connecting";
  why = "";
  addresses = new Set();
  #socket = null;
  #token = "";
  #credential;
  #number = 0;
  #hears;

  /** @param hears {frame(line, isOut, message), changed(line)} */
  constructor(name, url, credential, hears) {
    this.name = name;
    this.url = url;
    this.#credential = credential;
    this.#hears = hears;
    this.#connect("open");
  }

  get isOpen() {
    return this.state === "open";
  }

  /** An id that no message of this runtime had. */
  nextId() {
    this.#number += 1;
    return this.#number;
  }

  send(message) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    const text = JSON.stringify(message);
    this.#socket.send(this.#token ? text.replaceAll(TOKEN, this.#token) : text);
    this.#hears.frame(this, true, message);
    return true;
  }

  /** Cut the line, as a network does: the node keeps the session for a while. */
  drop() {
    this.#socket?.close(4000, "dropped in the playground");
  }

  comeBack() {
    this.#connect("re-open");
  }

  close() {
    const message = {
      id: this.nextId(),
      type: "close",
      from: `${this.url}/${TOKEN}`,
      to: SESSION,
      body: {},
    };
    if (!this.send(message)) this.#become("closed", "");
  }

  #connect(type) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const said = this.#credential ? ["msgnode", `bearer.${this.#credential}`] : [];
    let socket;
    try {
      socket = new WebSocket(`${scheme}://${location.host}/ws`, said);
    } catch {
      this.#become("failed", "the access token contains invalid characters");
      return;
    }
    this.#socket = socket;
    this.#become("connecting", "");
    const from = type === "re-open" ? `${this.url}/${TOKEN}` : this.url;
    socket.onopen = () => this.send({ id: this.nextId(), type, from, to: SESSION, body: {} });
    socket.onmessage = ({ data }) => this.#hear(data);
    socket.onclose = ({ code, reason }) => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      if (this.state === "closed" || this.state === "failed") return;
      this.#become(
        this.state === "open" ? "dropped" : "failed",
        `${reason || "the socket was closed"} (${code})`,
      );
    };
  }

  #hear(data) {
    const message = JSON.parse(data);
    const { body = {} } = message;
    if (message.from === SESSION && message.type === "response") {
      if (body.code !== 200) this.#become("failed", `${body.desc ?? "refused"} (${body.code})`);
      else if (this.state === "connecting") {
        if (body.runtimeToken) this.#token = body.runtimeToken;
        this.#become("open", "");
      } else this.#become("closed", "");
    }
    const allocated = body.value?.allocated;
    if (message.type === "response" && Array.isArray(allocated))
      allocated.forEach((address) => this.addresses.add(address));
    const shown = this.#token ? JSON.parse(data.replaceAll(this.#token, TOKEN)) : message;
    this.#hears.frame(this, false, shown);
  }

  #become(state, why) {
    this.state = state;
    this.why = why;
    if (state === "closed" || state === "failed") this.#socket?.close();
    this.#hears.changed(this);
  }
}
