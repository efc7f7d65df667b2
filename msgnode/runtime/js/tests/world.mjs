/** A world without a network: catalogues behind a fetch(), and stubs that run in the test's own realm. */

import assert from "node:assert/strict";
import { Runtime } from "../src/runtime.js";
import { digestOf } from "../src/digest.js";
import { inProcessChannel } from "../src/sandbox/in-process.js";
import { FakeClock, settled } from "./fake-clock.mjs";

export const HOME = "d";
export const R = "runtime://d/1";

/** A stub that tells the test what it does: globalThis.world.stubs[its URL]. */
export const STUB = `
export function activate(url, bus, config) {
  const stub = (globalThis.world.stubs[url] = { url, bus, config, sent: [], calls: [], name: "NAME" });
  stub.say = (value, desc) => bus.postMessage({ type: "update", from: url, to: url + "/status", body: { value, desc } });
  stub.bring = (message) => bus.postMessage(message);
  const idm = ({ id, from, to }) => bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 404 } });
  bus.addListener("*", (message) => {
    if (message.to.startsWith("domain://idm.") && message.body.method === "login") { idm(message); return; }
    stub.sent.push(message); globalThis.world.sent?.(stub, message);
  });
  globalThis.world.started.push(stub);
  stub.say("created");
  return { name: "stub", instance: {
    connect: (identity) => { stub.calls.push(["connect", identity]); stub.say("in-progress"); stub.say("live"); },
    disconnect: () => { stub.calls.push(["disconnect"]); stub.say("disconnected"); },
  } };
}`;

/** Catalogues by URL, and what they were asked. */
export class Catalogues {
  asked = [];
  answers = new Map(); // URL -> {status, text, type} or a function of the request

  fetch = async (url, { method = "GET", signal } = {}) => {
    this.asked.push(`${method} ${url}`);
    const known = this.answers.get(url);
    const answer = typeof known === "function" ? await known(method, signal) : known;
    if (!answer) return new Response("", { status: 404 });
    const { status = 200, text, json } = answer;
    if (status >= 300 && status < 400) return { status, ok: false, type: "basic" };
    return new Response(text ?? JSON.stringify(json), { status });
  };

  async add(
    domain,
    source = STUB,
    changes = {},
    url = `https://${domain}/.well-known/protocolstub/default`,
  ) {
    const json = { ...(await descriptorOf(domain, source)), ...changes };
    this.answers.set(url, { json });
    this.answers.set(`${url}/version`, { text: json.version });
    return json;
  }
}

export async function descriptorOf(domain, source = STUB) {
  return {
    cguid: `guid-${domain}`,
    type: "PROTOSTUB",
    version: "1.0",
    objectName: "Stub",
    description: "",
    language: "JAVASCRIPT_ECMA6",
    sourcePackageURL: "/sourcePackage",
    sourcePackage: {
      encoding: "utf-8",
      sourceCodeClassname: "Stub",
      sourceCode: source,
      integrity: `sha256-${await digestOf(source)}`,
      signature: "",
    },
    signature: "",
    configuration: { url: `wss://msg-node.${domain}/ws` },
    constraints: { browser: true, node: true, ws: true },
    interworking: false,
  };
}

/** A runtime in the world, with a clock that the test turns. */
export function newWorld(options = {}) {
  const clock = new FakeClock();
  const catalogues = new Catalogues();
  const world = (globalThis.world = { stubs: {}, started: [], ran: [] });
  const load = (source) =>
    import(`data:text/javascript;charset=utf-8,${encodeURIComponent(source)}//${Math.random()}`);
  const channels = [];
  const platform = {
    name: options.platform ?? "node",
    capabilities: ["http", "https", "ws", "wss"],
    openChannel: options.openChannel
      ? () => options.openChannel(load)
      : () => (channels.push(inProcessChannel(load)), channels.at(-1)),
    loadOwn: load,
  };
  const { platform: _, openChannel: __, ...given } = options;
  const runtime = new Runtime(
    { domain: HOME, runtimeURL: R, fetch: catalogues.fetch, clock, ...given },
    platform,
  );
  const errors = [];
  runtime.bus.onError((error) => errors.push(error));
  return { runtime, bus: runtime.bus, clock, catalogues, world, errors, channels };
}

/** Close the runtime of a world, which leaves no timer. */
export async function endWorld({ runtime, clock }) {
  const closing = runtime.close();
  await settled();
  await clock.turn(10_000);
  await closing;
  assert.deepEqual(clock.origins, [], "a closed runtime leaves no timer");
}

/** Wait until something is so; the loads of modules are real, whatever the clock says. */
export async function until(isSo, what = "it", milliseconds = 10_000) {
  const end = performance.now() + milliseconds;
  while (!isSo()) {
    if (performance.now() > end) throw new Error(`${what} did not come about`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
