/**
 * A Node.js runtime as a process that shares data objects, for tests.
 *
 * Usage: node sharer.mjs OPTIONS    (JSON for the Runtime)
 * Writes a line of JSON once it is there; reads lines {do, …} and answers each with a line.
 */

import { createInterface } from "node:readline";
import { Runtime } from "../../msgnode/runtime/js/src/node.js";
import { Syncher } from "../../msgnode/runtime/js/src/syncher/index.js";
import { sharing } from "./share.mjs";

const runtime = new Runtime(JSON.parse(process.argv[2]));
const act = await sharing(runtime, Syncher);
console.log("{}");
for await (const line of createInterface({ input: process.stdin }))
  console.log(JSON.stringify(await act(JSON.parse(line))));
await runtime.close();
