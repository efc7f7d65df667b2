/**
 * The sockets that the core of a runtime in Node.js dials for a sandbox, which has no network itself.
 *
 * Rules
 * - Only the origin of the stub's `url` is dialled; at most 4 sockets at a time.
 * - What is asked for and refused is told to the sandbox as a socket that closes.
 * - The sandbox is told how many of its texts the socket has taken, and how much of them has not left: at
 *   the end, too, so that a stub knows of what was lost.
 */

const MAX_SOCKETS = 4;
const MAX_BUFFERED = 4_194_304; // bytes that a socket of the core holds
const TELL_EVERY = 20; // ms
const CLOSE_TIME = 100; // ms after an error until the close; in Node.js 20 none follows where nobody listens
const NO_CLASS =
  "no WebSocket class here: start Node.js 20 with --experimental-websocket, or give one as `WebSocket`";

/**
 * @param send takes a frame for the sandbox
 * @param allowed the URL whose origin may be dialled; none if it is not given
 * @param WebSocket the class to dial with
 * @param failed called with the reason why the sandbox has to end
 * @returns {heard(frame): a frame of the sandbox, close()}
 */
export function dialling(send, allowed, WebSocket, failed) {
  const open = new Map();

  function dial(number, url, protocols) {
    const tell = (event, more) => send({ socket: number, event, ...more });
    const refuse = (reason) => {
      tell("error");
      tell("close", { code: 1006, reason });
    };
    if (!allowed || open.size >= MAX_SOCKETS || open.has(number))
      return refuse("No socket is allowed.");
    let socket;
    try {
      if (originOf(url) !== originOf(allowed))
        return refuse(`Only ${originOf(allowed)} may be dialled.`);
      if (!WebSocket) throw new Error(NO_CLASS);
      socket = new WebSocket(url, protocols);
    } catch (error) {
      return refuse(String(error.message).slice(0, 100));
    }
    // What has not left is looked at while the socket lives: Node.js counts as gone what a broken one had.
    const account = { socket, taken: 0, buffered: 0, timer: null };
    account.tell = (event, more) =>
      tell(event, { taken: account.taken, buffered: account.buffered, ...more });
    open.set(number, account);
    socket.onopen = () => tell("open");
    socket.onmessage = ({ data }) => typeof data === "string" && tell("message", { data });
    socket.onclose = ({ code, reason }) => {
      clearTimeout(account.timer);
      open.delete(number);
      account.tell("close", { code, reason });
    };
    socket.onerror = () => {
      tell("error");
      setTimeout(() => {
        if (open.get(number) === account) socket.onclose({ code: 1006, reason: "" });
      }, CLOSE_TIME);
    };
    return undefined;
  }

  /** Have the sandbox told what has left, until all has. */
  function tellSoon(account) {
    account.timer ??= setTimeout(() => {
      account.timer = null;
      account.buffered = account.socket.bufferedAmount;
      account.tell("left");
      if (account.buffered) tellSoon(account);
    }, TELL_EVERY);
  }

  function heard({ socket: number, open: url, protocols, send: text, close: code, reason }) {
    const account = open.get(number);
    const socket = account?.socket;
    if (typeof url === "string")
      dial(number, url, Array.isArray(protocols) ? protocols.map(String) : []);
    else if (typeof text === "string" && socket?.readyState === 1) {
      socket.send(text);
      account.taken += 1;
      account.buffered = socket.bufferedAmount;
      tellSoon(account);
      if (socket.bufferedAmount > MAX_BUFFERED) failed("Its socket does not take what it sends.");
    } else if (code !== undefined) {
      try {
        socket?.close(code, reason);
      } catch {
        socket?.close();
      }
    }
  }

  function close() {
    for (const { socket, timer } of open.values()) {
      clearTimeout(timer);
      socket.onopen = socket.onmessage = socket.onerror = socket.onclose = null;
      socket.close();
    }
    open.clear();
  }

  return { heard, close };
}

function originOf(url) {
  const { protocol, host } = new URL(url);
  return `${protocol}//${host}`;
}
