/**
 * A Node.js runtime that is asked for direct connections, as a process: the other end for pages.
 *
 * Usage: p2p_nodejs.mjs OPTIONS. It reads and writes lines as p2p_talker.py does.
 */

import { createInterface } from "node:readline";
import { Runtime } from "../../msgnode/runtime/js/src/node.js";
import { talker } from "./p2p.mjs";

const here = await talker(JSON.parse(process.argv[2]), { Runtime });
const { url, runtimeURL, handler, registration } = here;
const write = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
write({ url, runtimeURL, handler, registration });
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  write({ result: (await here[order.do](...order.with)) ?? null });
}
await here.close();
process.exit();
