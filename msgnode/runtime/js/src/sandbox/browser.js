/**
 * The sandbox of a browser: a hidden frame of an opaque origin, and in it a worker.
 *
 * Rules
 * - The frame's policy (CSP) lets it connect to the origin of the stub's `url` and nowhere else; the
 *   worker inherits it. It loads nothing, has no storage, no cookie and no view of the page.
 * - Stubs that need a window (WebRTC) run in the frame itself; all others in the worker, where there is
 *   no WebRTC that a policy could not forbid.
 * - Frame and core speak over a MessageChannel. It is handed over with a nonce, once; messages between
 *   windows are not listened to at all. A frame that goes to another page is ended.
 * - The component's code cannot reach the port: the inside took it before that code was loaded, and the
 *   worker's own postMessage is taken away. What gets through faster than four times the rate is
 *   ended: its sender has got around the inside.
 * - A browser may put the frames of one origin into one process, which ends for all of them when one
 *   takes all memory. With `sandboxPage`, an address with a `*` in its host, each sandbox has a frame
 *   of a host of its own, and with that a process.
 */

import { LoadError } from "../errors.js";
import { INSIDE, joined } from "./bundle.js";
import { newId } from "../ids.js";
import { sha256 } from "../sha256.js";
import { LIMITS, roughSize } from "./limits.js";

const OPEN_TIME = 10_000; // ms until the frame is there

const texts = new Map(); // name -> promise of the text

/** The text of a module beside this one, fetched once. */
function textOf(name) {
  let text = texts.get(name);
  if (!text) {
    text = fetch(new URL(`../${name}`, import.meta.url)).then((answer) => {
      if (!answer.ok) throw new LoadError(503, `The sandbox cannot be made: ${name} is missing.`);
      return answer.text();
    });
    text.catch(() => texts.delete(name));
    texts.set(name, text);
  }
  return text;
}

/** The script of what runs inside. */
async function insideScript() {
  return `${joined(await Promise.all(INSIDE.map(textOf)))}\n(${insideMain})(openInside, exportsOf, port, limits);`;
}

/** Have ready what a sandbox is made of. */
export function prepareBrowserChannel() {
  Promise.all([insideScript(), textOf("sandbox/frame.js")]).catch(() => {}); // told to who opens one
}

/** Runs in the worker (or the frame), after the inside: joins it with the port. */
function insideMain(openInside, exportsOf, port, limits) {
  const post = port.postMessage.bind(port);
  const toURL = URL.createObjectURL.bind(URL);
  const forget = URL.revokeObjectURL.bind(URL);
  const importModule = async (source) => {
    const url = toURL(new Blob([source], { type: "text/javascript" }));
    try {
      return await import(url);
    } finally {
      forget(url);
    }
  };
  const load = async (source) => (await exportsOf(source, importModule)).exported;
  const receive = openInside((frame) => post(frame), load, limits);
  port.addEventListener("message", ({ data }) => receive(data));
  port.start();
  const isWorker = typeof DedicatedWorkerGlobalScope === "function";
  if (isWorker)
    Object.defineProperty(DedicatedWorkerGlobalScope.prototype, "postMessage", { value: () => {} });
}

/**
 * Open a sandbox.
 *
 * @param request {key: what is told apart, kind: "worker" or "window", url: what its stub connects to, limits}
 * @param options {sandboxPage}
 * @returns a channel as Sandbox needs it
 */
export async function openBrowserChannel({ key, kind, url, limits }, { sandboxPage } = {}) {
  const { rate, rateBytes } = { ...LIMITS, ...limits };
  const script = await insideScript();
  const nonce = newId();
  const policy = policyFor(url);
  const frame = document.createElement("iframe");
  frame.hidden = true;
  frame.title = "Sandbox of a protostub";
  frame.setAttribute("sandbox", "allow-scripts");
  if (sandboxPage) frame.src = `${sandboxPage.replace("*", labelOf(key))}#${nonce}`;
  else frame.srcdoc = textOfFrame(nonce, policy, await textOf("sandbox/frame.js"));
  await opened(frame);
  const { port1, port2 } = new MessageChannel();
  const channel = {
    onFrame: () => {},
    onClose: () => {},
    send: (message) => port1.postMessage(message),
    kill,
  };
  const flood = floodGuard(rate * 4, () => channel.onClose("It sends more than it may."));
  const costOf = (frame) => Math.max(1, (roughSize(frame?.message) * rate) / rateBytes);
  port1.onmessage = ({ data }) => flood(costOf(data)) && channel.onFrame(data);
  frame.onload = () => channel.onClose("Its frame went to another page.");
  const isWindow = kind === "window";
  frame.contentWindow.postMessage(
    { nonce, policy, script, limits: { rate, rateBytes }, isWindow },
    "*",
    [port2],
  );
  return channel;

  function kill() {
    port1.onmessage = frame.onload = null;
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

function textOfFrame(nonce, policy, script) {
  const head = `<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}">`;
  return `<!doctype html><html data-nonce="${nonce}"><head>${head}<script>${script}</script></head></html>`;
}

function policyFor(url) {
  const { protocol, host } = url ? new URL(url) : {};
  return [
    "default-src 'none'",
    "script-src 'unsafe-inline' 'unsafe-eval' blob:",
    "worker-src blob:",
    `connect-src ${host ? `${protocol}//${host}` : "'none'"}`,
    "form-action 'none'",
    "base-uri 'none'",
  ].join("; ");
}

/** A label for a host name, of its own for each key. */
function labelOf(key) {
  const bytes = sha256(new TextEncoder().encode(key)).subarray(0, 12);
  return `s${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Whether something of this cost is within `most` a second. */
function floodGuard(most, exceeded) {
  let since = performance.now();
  let spent = 0;
  return (cost) => {
    const now = performance.now();
    if (now - since > 1000) {
      since = now;
      spent = 0;
    }
    const before = spent;
    spent += cost;
    if (spent <= most) return true;
    if (before <= most) exceeded();
    return false;
  };
}
