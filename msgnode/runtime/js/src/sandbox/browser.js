/**
 * The sandbox of a browser: a hidden frame of an opaque origin, and in it a worker.
 *
 * Rules
 * - The frame's policy (CSP) lets it connect to the origin of the stub's `url` and nowhere else; the
 *   worker inherits it. It loads nothing, has no storage, no cookie and no view of the page.
 * - Stubs that need a window (WebRTC) run in the frame itself; all others in the worker, where there is
 *   no WebRTC that a policy could not forbid.
 * - Frame and core speak over a MessageChannel. It is handed over with a nonce, once; messages between
 *   windows are not listened to at all.
 * - The component's code cannot reach the port: the inside took it before that code was loaded, and the
 *   worker's own postMessage is taken away. What gets through faster than four times the rate is
 *   ended: its sender has got around the inside.
 */

import { LoadError } from "../errors.js";
import { INSIDE, joined } from "./bundle.js";
import { newId } from "../ids.js";

const OPEN_TIME = 10_000; // ms until the frame is there

let inside = null; // the script of what runs inside

/** The text of the inside, fetched once from beside this module. */
async function insideScript() {
  inside ??= Promise.all(
    INSIDE.map(async (name) => {
      const answer = await fetch(new URL(`../${name}`, import.meta.url));
      if (!answer.ok) throw new LoadError(503, `The sandbox cannot be made: ${name} is missing.`);
      return answer.text();
    }),
  ).then(joined);
  try {
    return await inside;
  } catch (error) {
    inside = null;
    throw error;
  }
}

/** Runs in the frame: waits for the port, and hands it on to the worker. */
function frameMain(nonce, isWindow) {
  addEventListener("message", function take({ source, data, ports }) {
    if (source !== parent || data?.nonce !== nonce) return;
    removeEventListener("message", take);
    if (isWindow) {
      new Function("port", "rate", data.script)(ports[0], data.rate);
      return;
    }
    const start = `onmessage = ({ data, ports }) => { onmessage = null; new Function("port", "rate", data.script)(ports[0], data.rate); };`;
    const worker = new Worker(URL.createObjectURL(new Blob([start], { type: "text/javascript" })));
    worker.postMessage({ script: data.script, rate: data.rate }, [ports[0]]);
  });
}

/** Runs in the worker (or the frame), after the inside: joins it with the port. */
function insideMain(openInside, port, rate) {
  const post = port.postMessage.bind(port);
  const toURL = URL.createObjectURL.bind(URL);
  const forget = URL.revokeObjectURL.bind(URL);
  const load = async (source) => {
    const url = toURL(new Blob([source], { type: "text/javascript" }));
    try {
      return await import(url);
    } finally {
      forget(url);
    }
  };
  const receive = openInside((frame) => post(frame), load, rate);
  port.addEventListener("message", ({ data }) => receive(data));
  port.start();
  const isWorker = typeof DedicatedWorkerGlobalScope === "function";
  if (isWorker) Object.defineProperty(DedicatedWorkerGlobalScope.prototype, "postMessage", { value: () => {} });
}

/**
 * Open a sandbox.
 *
 * @param request {kind: "worker" or "window", url: what its stub connects to, limits}
 * @returns a channel as Sandbox needs it
 */
export async function openBrowserChannel({ kind, url, limits }) {
  const rate = limits.rate ?? 1000;
  const script = `${await insideScript()}\n(${insideMain})(openInside, port, rate);`;
  const nonce = newId();
  const frame = document.createElement("iframe");
  frame.hidden = true;
  frame.title = "Sandbox of a protostub";
  frame.setAttribute("sandbox", "allow-scripts");
  frame.srcdoc = page(nonce, kind === "window", url);
  await opened(frame);
  const { port1, port2 } = new MessageChannel();
  const channel = { onFrame: () => {}, onClose: () => {}, send: (message) => port1.postMessage(message), kill };
  const flood = floodGuard(rate * 4, () => channel.onClose("It sends more than it may."));
  port1.onmessage = ({ data }) => flood() && channel.onFrame(data);
  frame.contentWindow.postMessage({ nonce, script, rate }, "*", [port2]);
  return channel;

  function kill() {
    port1.onmessage = null;
    port1.close();
    frame.remove();
  }
}

function opened(frame) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      frame.remove();
      reject(new LoadError(504, "The sandbox did not open in time."));
    }, OPEN_TIME);
    frame.onload = () => {
      clearTimeout(timer);
      resolve();
    };
    document.body.append(frame);
  });
}

function page(nonce, isWindow, url) {
  const origin = url ? new URL(url).origin.replace(/^null$/, "") || originOf(url) : "";
  const policy = [
    "default-src 'none'",
    "script-src 'unsafe-inline' 'unsafe-eval' blob:",
    "worker-src blob:",
    `connect-src ${origin || "'none'"}`,
    "form-action 'none'",
    "base-uri 'none'",
  ].join("; ");
  return (
    `<!doctype html><meta http-equiv="Content-Security-Policy" content="${policy}">` +
    `<script>(${frameMain})("${nonce}", ${isWindow})</script>`
  );
}

function originOf(url) {
  const { protocol, host } = new URL(url);
  return `${protocol}//${host}`;
}

/** Whether one more message is within `most` a second. */
function floodGuard(most, exceeded) {
  let since = performance.now();
  let count = 0;
  return () => {
    const now = performance.now();
    if (now - since > 1000) {
      since = now;
      count = 0;
    }
    count += 1;
    if (count <= most) return true;
    if (count === most + 1) exceeded();
    return false;
  };
}
