/**
 * The sandbox of Node.js: a child process for each domain, with nothing it could reach.
 *
 * Rules
 * - The permission model of Node.js refuses files, child processes, workers and native code. The
 *   environment is empty. The heap is limited, and so is the memory of the whole process.
 * - The core dials: the child's WebSocket goes through the port, to the host of the stub's `url` only.
 *   Where the kernel lets us (Linux, `unshare`), the child has no network at all; elsewhere the modules
 *   that reach it are taken away in JavaScript, which keeps out mistakes rather than a determined
 *   attacker: `isolation: "required"` refuses foreign stubs there.
 * - A child that sends more than its rate is not read for a while; one that ends is reported; none
 *   outlives the core.
 */

import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { LoadError } from "../errors.js";
import { INSIDE, joined } from "./bundle.js";

const MAX_LINE = 8_388_608; // characters
const MAX_STDERR = 2_000; // characters that are kept for the report
const MAX_SOCKETS = 4;
const MAX_BUFFERED = 4_194_304; // bytes that a socket of the core holds
const DATA_BEYOND_HEAP = 448; // MiB of data that Node.js itself may map
const MEMORY_BEYOND_HEAP = 160; // MiB of memory that Node.js itself may use
const MEMORY_EVERY = 500; // ms

const children = new Set();
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));

const read = (name) => readFileSync(new URL(`../${name}`, import.meta.url), "utf8");
let script = null;

/** What this machine can wrap a child in, tried once. */
const wrappers = {
  found: null,
  get() {
    const works = (...command) => spawnSync(command[0], [...command.slice(1), "true"], { stdio: "ignore", timeout: 5000 }).status === 0;
    this.found ??= {
      network: works("unshare", "--map-root-user", "--net") ? ["unshare", "--map-root-user", "--net"] : null,
      death: works("setpriv", "--pdeathsig", "KILL") ? ["setpriv", "--pdeathsig", "KILL"] : [],
      limit: process.platform === "linux" ? (mebibytes) => ["/bin/sh", "-c", `ulimit -c 0; ulimit -d ${mebibytes * 1024}; exec "$0" "$@"`] : () => [],
    };
    return this.found;
  },
};

/**
 * Open a sandbox.
 *
 * @param request {url: what its stub connects to, limits}
 * @param options {WebSocket: the class the core dials with, isolation: "best-effort" or "required"}
 * @returns a channel as Sandbox needs it
 */
export function openChildChannel({ url, limits }, { WebSocket = globalThis.WebSocket, isolation = "best-effort" } = {}) {
  const { network, death, limit } = wrappers.get();
  if (!network && isolation === "required") {
    throw new LoadError(501, "This machine cannot keep a sandbox off the network, and isolation is required.");
  }
  const memory = limits.memory ?? 64;
  script ??= `${joined(INSIDE.map(read))}\n${read("sandbox/child-main.js")}\n`;
  const code = `${script}await childMain(openInside, ${limits.rate ?? 1000});`;
  const wrapped = [...(network ?? []), ...death, ...limit(memory + DATA_BEYOND_HEAP), process.execPath];
  const flags = [permissionFlag(), "--no-warnings", `--max-old-space-size=${memory}`, "--input-type=module", "-e", code];
  const child = spawn(wrapped[0], [...wrapped.slice(1), ...flags], { env: {}, cwd: "/", stdio: ["ignore", "ignore", "pipe", "pipe"] });
  children.add(child);
  const channel = { onFrame: () => {}, onClose: () => {}, send, kill };
  const pipe = child.stdio[3];
  const sockets = dialling(send, url, WebSocket, (reason) => channel.onClose(reason));
  const watch = watchMemory(child.pid, memory + MEMORY_BEYOND_HEAP, (reason) => channel.onClose(reason));
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (said = (said + text).slice(-MAX_STDERR)));
  child.on("error", (error) => ended(`The sandbox cannot be started: ${error.message}`));
  child.on("exit", (status, signal) => ended(/heap out of memory|Allocation failed/.test(said) ? "It used too much memory." : `It ended (${signal ?? status}).`));
  pipe.on("error", () => {});
  readLines(pipe, (limits.rate ?? 1000) * 2, receive, (reason) => channel.onClose(reason));
  return channel;

  function send(frame) {
    if (pipe.writable) pipe.write(`${JSON.stringify(frame)}\n`);
  }

  function receive(line) {
    let frame;
    try {
      frame = JSON.parse(line);
    } catch {
      frame = null;
    }
    if (typeof frame?.socket === "number") sockets.heard(frame);
    else channel.onFrame(frame);
  }

  function ended(reason) {
    children.delete(child);
    channel.onClose(reason);
  }

  function kill() {
    clearInterval(watch);
    sockets.close();
    pipe.destroy();
    child.kill("SIGKILL");
  }
}

function permissionFlag() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  return major > 22 || (major === 22 && minor >= 13) ? "--permission" : "--experimental-permission";
}

/** Hand on lines, at `rate` a second over time: above it the pipe is not read for a while. */
function readLines(pipe, rate, take, failed) {
  let rest = "";
  let tokens = rate;
  let since = performance.now();
  pipe.setEncoding("utf8");
  pipe.on("data", (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    if (rest.length > MAX_LINE) {
      failed("It sent a line that is too long.");
      return;
    }
    const now = performance.now();
    tokens = Math.min(rate, tokens + ((now - since) * rate) / 1000) - lines.length;
    since = now;
    lines.forEach(take);
    if (tokens < 0) {
      pipe.pause();
      setTimeout(() => pipe.resume(), Math.min(2000, (-tokens / rate) * 1000 + 20));
    }
  });
}

/** The sockets that the core dials for a child. */
function dialling(send, allowed, WebSocket, failed) {
  const open = new Map();
  const origin = (url) => {
    const { protocol, host } = new URL(url);
    return `${protocol}//${host}`;
  };

  function dial(number, url, protocols) {
    const tell = (event, more) => send({ socket: number, event, ...more });
    const refuse = (reason) => {
      tell("error");
      tell("close", { code: 1006, reason });
    };
    if (!allowed || open.size >= MAX_SOCKETS || open.has(number)) return refuse("No socket is allowed.");
    let socket;
    try {
      if (origin(url) !== origin(allowed)) return refuse(`Only ${origin(allowed)} may be dialled.`);
      if (!WebSocket) throw new Error("there is no WebSocket class here: give one as `WebSocket`");
      socket = new WebSocket(url, protocols);
    } catch (error) {
      return refuse(String(error.message).slice(0, 100));
    }
    open.set(number, socket);
    socket.onopen = () => tell("open");
    socket.onmessage = ({ data }) => typeof data === "string" && tell("message", { data });
    socket.onerror = () => tell("error");
    socket.onclose = ({ code, reason }) => {
      open.delete(number);
      tell("close", { code, reason });
    };
    return undefined;
  }

  function heard({ socket: number, open: url, protocols, send: text, close: code, reason }) {
    const socket = open.get(number);
    if (typeof url === "string") dial(number, url, Array.isArray(protocols) ? protocols.map(String) : []);
    else if (typeof text === "string" && socket?.readyState === 1) {
      socket.send(text);
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
    for (const socket of open.values()) {
      socket.onopen = socket.onmessage = socket.onerror = socket.onclose = null;
      socket.close();
    }
    open.clear();
  }

  return { heard, close };
}

/** End a child whose memory, buffers outside the heap included, passes a limit. */
function watchMemory(pid, mebibytes, exceeded) {
  if (process.platform !== "linux") return undefined;
  const timer = setInterval(() => {
    try {
      const pages = Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]);
      if (pages / 256 > mebibytes) exceeded("It used too much memory.");
    } catch {
      clearInterval(timer);
    }
  }, MEMORY_EVERY);
  timer.unref();
  return timer;
}
