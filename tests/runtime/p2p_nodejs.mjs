/**
 * A Node.js runtime that is asked for direct connections, as a process: the other end for pages.
 *
 * Usage: p2p_nodejs.mjs OPTIONS. With WERIFT, the folder of that package, it has WebRTC. It reads and writes lines as p2p_talker.py does.
 */

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { Runtime } from "../../msgnode/runtime/js/src/node.js";
import { talker } from "./p2p.mjs";

/** WebRTC of the package, on the loopback as well, which is all there may be. */
function ofPackage(folder) {
  const { RTCPeerConnection } = createRequire(import.meta.url)(folder);
  return class extends RTCPeerConnection {
    constructor(configuration) {
      super({ ...configuration, iceAdditionalHostAddresses: ["127.0.0.1"] });
    }
  };
}

const { WERIFT } = process.env;
const platform = WERIFT ? { Runtime, RTCPeerConnection: ofPackage(WERIFT) } : { Runtime };
const here = await talker(JSON.parse(process.argv[2]), platform);
const { url, runtimeURL, handler, registration } = here;
const write = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
write({ url, runtimeURL, handler, registration });
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  write({ result: (await here[order.do](...order.with)) ?? null });
}
await here.close();
process.exit();
