/** A runtime in Node.js that asks a registry over REST: sends messages, given as JSON, and prints the answers. */

import { Runtime } from "../../msgnode/runtime/js/src/node.js";

const { options, messages } = JSON.parse(process.argv[2]);
const runtime = new Runtime(options);
const answers = [];
for (const [type, body] of messages) {
  const message = { type, from: `${runtime.url}/test`, to: "domain://registry.localhost", body };
  const said = await runtime.bus
    .request(message)
    .catch((error) => error.body ?? { code: error.code });
  answers.push(said);
}
console.log(JSON.stringify({ answers, stubs: runtime.stubs.get("localhost") ? 1 : 0 }));
await runtime.close();
