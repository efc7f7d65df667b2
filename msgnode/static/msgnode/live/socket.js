/**
 * The console's socket: texts of the node's feed, each acknowledged, and the way back after a loss.
 *
 * - A page out of view closes its socket, and opens it again when it is seen.
 * - After a loss it tries again, after 1 s, doubling to 30 s; each time between half and all of it.
 * - 4403 means that this log-in may watch no longer: it does not return.
 */

const FIRST = 1000; // ms
const LONGEST = 30_000;
const NO_RETURN = { 4403: "you are logged out, or may no longer see this page" };
const REASONS = {
  3001: "the node restarts",
  4408: "this page did not read in time",
  4429: "too many consoles are open",
  4503: "the database does not answer, so permissions cannot be checked",
};

/** What a page says that has lost its socket. */
export function outdated(why, isOver) {
  return `not up to date: ${why}${isOver ? "" : "; trying again"}`;
}

export class LiveSocket {
  #socket = null;
  #delay = FIRST;
  #timer;
  #url;
  #hears;
  #isOver = false;

  /** @param hears {opened(), text(message), lost(why, isOver)} */
  constructor(path, hears) {
    this.#url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;
    this.#hears = hears;
    document.addEventListener("visibilitychange", () => this.#turn());
    addEventListener("pagehide", () => this.#socket?.close());
    this.#turn();
  }

  say(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  /** Nobody listens any more. */
  close() {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  #turn() {
    clearTimeout(this.#timer);
    if (this.#isOver) return;
    if (document.visibilityState !== "visible") this.#socket?.close();
    else if (!this.#socket) this.#open();
  }

  #open() {
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    socket.onopen = () => this.#hears.opened();
    socket.onmessage = ({ data }) => {
      this.#delay = FIRST;
      this.say({ ack: true });
      this.#hears.text(JSON.parse(data));
    };
    socket.onclose = ({ code }) => {
      if (this.#socket === socket) this.#socket = null;
      if (this.#isOver) return;
      const isOver = code in NO_RETURN;
      this.#hears.lost(NO_RETURN[code] ?? REASONS[code] ?? "the node cannot be reached", isOver);
      if (isOver || document.visibilityState !== "visible") return;
      this.#timer = setTimeout(() => this.#turn(), this.#delay * (0.5 + Math.random() / 2));
      this.#delay = Math.min(this.#delay * 2, LONGEST);
    };
  }
}
