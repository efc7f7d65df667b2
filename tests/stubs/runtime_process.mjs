/**
 * A Node.js runtime as a process: its stub on a bus that a test reads and writes as lines of JSON.
 *
 * Usage: node runtime_process.mjs CONFIG    (JSON with stubURL, loader and the stub's configuration)
 * Loaders: "activate" finds the global WebSocket class, "start" is given one, "http" needs none.
 * Reads and writes as runtime_process.py does.
 */

import { createInterface } from "node:readline";
import Stub, { activate } from "../../msgnode/runtime/js/src/protostub.js";

const { stubURL, loader, ...config } = JSON.parse(process.argv[2]);
const outgoing = [];
const bus = {
  addListener: (address, listener) => address === "*" && outgoing.push(listener),
  postMessage: (message) => console.log(JSON.stringify(message)),
};

let stub;
if (loader === "http") {
  await import("../../msgnode/runtime/js/src/http-protostub.js");
  delete globalThis.WebSocket;
}
if (loader === "start") {
  config.WebSocket = globalThis.WebSocket;
  delete globalThis.WebSocket;
  stub = new Stub();
  stub._start(stubURL, bus, config, {});
} else {
  stub = activate(stubURL, bus, config).instance;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { post, call } = JSON.parse(line);
  if (post) outgoing.forEach((listener) => listener(post));
  else stub[call]().then(() => bus.postMessage({ type: "done", to: call }));
}
process.exit();
