/**
 * A Node.js runtime as a process, for tests: a hyperty that answers what it is asked, and that asks.
 *
 * Usage: node talker.mjs OPTIONS    (JSON for the Runtime; `token`: log in with this access token)
 * Writes a line of JSON {url, runtimeURL} once it is reachable. Reads lines {ask: address, times},
 * and answers each with {codes, latencies} (ms); {renew: domain} has a newer stub take over.
 */

import { createInterface } from "node:readline";
import { Runtime } from "../../msgnode/runtime/js/src/node.js";
import { conversation } from "./talk.mjs";

const { token, ...options } = JSON.parse(process.argv[2]);
const runtime = new Runtime(options);
const { url, ask } = await conversation(runtime, token);
console.log(JSON.stringify({ url, runtimeURL: runtime.url }));
for await (const line of createInterface({ input: process.stdin })) {
  const { ask: address, times, renew } = JSON.parse(line);
  console.log(
    JSON.stringify(renew ? ((await runtime.renew(renew)) ?? {}) : await ask(address, times)),
  );
}
await runtime.close();
