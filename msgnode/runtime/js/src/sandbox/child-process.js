/**
 * The sandboxes of Node.js: a child process for each domain, with nothing it could reach.
 *
 * Rules
 * - The permission model of Node.js refuses files, child processes, workers and native code. The
 *   environment is empty. The heap is limited, and so is the memory of the whole process.
 * - The core dials: the child's WebSocket goes through the port, to the host of the stub's `url` only.
 *   Where the kernel lets us (Linux, `unshare`), the child has no network at all; elsewhere the modules
 *   that reach it are taken away in JavaScript, which keeps out mistakes rather than a determined
 *   attacker: `isolation: "required"` refuses foreign stubs there.
 * - A process knows no domain until its first component comes: one is started while the catalogue is
 *   being asked, and kept a while for the next load if this one fails.
 * - A child that sends more than its rate is not read for a while; one that ends is reported; none
 *   outlives the core.
 */

import { execFile, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { LoadError } from "../errors.js";
import { INSIDE, joined } from "./bundle.js";
import { LIMITS } from "./limits.js";
import { dialling } from "./sockets.js";

const MAX_LINE = 8_388_608; // characters: a message of 1 MiB, each escaped
const MAX_STDERR = 2_000; // characters that are kept for the report
const MEMORY_BEYOND_HEAP = 160; // MiB of memory that Node.js itself may use
const MEMORY_EVERY = 200; // ms
const PROBE_TIME = 5_000; // ms
const SPARE_TIME = 30_000; // ms that a process waits for a component

const children = new Set();
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));

const read = (name) => readFileSync(new URL(`../${name}`, import.meta.url), "utf8");
let script = null;
let wrappers = null;

/** What this machine can wrap a child in: {network, death}, each a command's beginning or null. */
function foundWrappers() {
  const tried = (command, rest) =>
    new Promise((resolve, reject) => {
      execFile(command[0], [...command.slice(1), ...rest], { timeout: PROBE_TIME }, (error) => {
        // Killed, or not even started for want of resources: that says nothing of the machine.
        if (error && typeof error.code !== "number" && error.code !== "ENOENT") reject(error);
        else resolve(error ? null : command);
      });
    });
  wrappers ??= Promise.all([
    tried(["unshare", "--map-root-user", "--net"], ["true"]),
    tried(["setpriv", "--pdeathsig", "KILL"], ["true"]),
  ]).then(
    ([network, death]) => ({ network, death }),
    () => {
      wrappers = null;
      return { network: null, death: null };
    },
  );
  return wrappers;
}

/** The child processes of one runtime. */
export class ChildProcesses {
  #WebSocket;
  #isolation;
  #limits;
  #spare = null; // the promise of a process that has no component yet
  #timer = null;
  #isClosed = false;

  /** @param options {WebSocket: the class the core dials with, isolation: "best-effort" or "required", limits} */
  constructor({ WebSocket = globalThis.WebSocket, isolation = "best-effort", limits = {} } = {}) {
    this.#WebSocket = WebSocket;
    this.#isolation = isolation;
    this.#limits = { ...LIMITS, ...limits };
  }

  /** Start a process for the sandbox that will soon be asked for, unless one waits already. */
  prepare() {
    if (this.#spare || this.#isClosed) return;
    this.#spare = this.#started();
    this.#spare.catch(() => {}); // told to who asks for it
    this.#timer = setTimeout(() => this.#endSpare(), SPARE_TIME);
    this.#timer.unref();
  }

  /**
   * Open a sandbox.
   *
   * @param request {url: what its stub connects to}
   * @returns a channel as Sandbox needs it
   * @throws LoadError
   */
  async open({ url }) {
    const waiting = this.#taken();
    let child = await waiting;
    if (!child || child.end !== null) child = await this.#started();
    if (this.#isClosed) {
      child.kill();
      throw new LoadError(503, "The runtime closes.");
    }
    const channel = {
      onFrame: () => {},
      onClose: () => {},
      send: child.send,
      kill,
      isIsolated: child.isIsolated,
    };
    const sockets = dialling(child.send, url, this.#WebSocket, (reason) => channel.onClose(reason));
    child.onEnd = (reason) => channel.onClose(reason);
    child.onFrame = (frame) => {
      if (typeof frame?.socket === "number") sockets.heard(frame);
      else channel.onFrame(frame);
    };
    return channel;

    function kill() {
      sockets.close();
      child.kill();
    }
  }

  /** End the process that has no component. */
  close() {
    this.#isClosed = true;
    this.#endSpare();
  }

  #taken() {
    const spare = this.#spare;
    this.#spare = null;
    clearTimeout(this.#timer);
    return spare;
  }

  #endSpare() {
    this.#taken()?.then(
      (child) => child.kill(),
      () => {},
    );
  }

  async #started() {
    const { network, death } = await foundWrappers();
    if (!network && this.#isolation === "required") {
      throw new LoadError(
        501,
        "This machine cannot keep a sandbox off the network, and isolation is required.",
      );
    }
    return startChild(
      [...(network ?? []), ...(death ?? []), process.execPath],
      Boolean(network),
      this.#limits,
    );
  }
}

/** A process: {end: why it ended or null, onEnd, onFrame, send(frame), kill(), isIsolated}. */
function startChild(command, isIsolated, { rate, rateBytes, memory }) {
  script ??= `${joined(INSIDE.map(read))}\n${read("sandbox/child-main.js")}\n`;
  const code = `${script}await childMain(openInside, exportsOf, ${JSON.stringify({ rate, rateBytes })});`;
  const flags = [
    permissionFlag(),
    "--no-warnings",
    `--max-old-space-size=${Number(memory)}`,
    "--input-type=module",
    "-e",
    code,
  ];
  const child = spawn(command[0], [...command.slice(1), ...flags], {
    env: {},
    cwd: "/",
    stdio: ["ignore", "ignore", "pipe", "pipe"],
  });
  children.add(child);
  const pipe = child.stdio[3];
  const started = { end: null, onEnd: () => {}, onFrame: () => {}, send, kill, isIsolated };
  const watch = watchMemory(child.pid, memory + MEMORY_BEYOND_HEAP, ended);
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (said = (said + text).slice(-MAX_STDERR)));
  child.on("error", (error) => gone(`The sandbox cannot be started: ${error.message}`));
  child.on("exit", (status, signal) =>
    gone(
      /heap out of memory|Allocation failed/.test(said)
        ? "It used too much memory."
        : `It ended (${signal ?? status}).`,
    ),
  );
  pipe.on("error", () => {});
  readLines(pipe, { rate: rate * 2, rateBytes: rateBytes * 2 }, receive, ended);
  return started;

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
    started.onFrame(frame);
  }

  function gone(reason) {
    children.delete(child);
    clearInterval(watch);
    ended(reason);
  }

  function ended(reason) {
    if (started.end !== null) return;
    started.end = reason;
    started.onEnd(reason);
  }

  function kill() {
    clearInterval(watch);
    pipe.destroy();
    child.kill("SIGKILL");
  }
}

function permissionFlag() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  return major > 22 || (major === 22 && minor >= 13) ? "--permission" : "--experimental-permission";
}

/** Hand on lines, at `rate` lines and `rateBytes` characters a second over time: above it the pipe is not read for a while. */
function readLines(pipe, { rate, rateBytes }, take, failed) {
  let begun = []; // the chunks of a line whose end is still to come
  let length = 0;
  let tokens = rate;
  let since = performance.now();
  pipe.setEncoding("utf8");
  pipe.on("data", (chunk) => {
    const lines = chunk.split("\n");
    if (lines.length > 1) {
      lines[0] = begun.join("") + lines[0];
      begun = [];
      length = 0;
    }
    const rest = lines.pop();
    begun.push(rest);
    length += rest.length;
    if (length > MAX_LINE) {
      failed("It sent a line that is too long.");
      return;
    }
    const now = performance.now();
    const used = Math.max(lines.length, (chunk.length * rate) / rateBytes);
    tokens = Math.min(rate, tokens + ((now - since) * rate) / 1000) - used;
    since = now;
    lines.forEach(take);
    if (tokens < 0) {
      pipe.pause();
      setTimeout(() => pipe.resume(), (-tokens / rate) * 1000 + 20).unref();
    }
  });
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
