/** A runtime in Node.js that looks for persons: does one order, given as JSON, and prints what it saw. */

import { Runtime } from "../../msgnode/runtime/js/src/node.js";

const { options, words, add, find, card } = JSON.parse(process.argv[2]);
const runtime = new Runtime(options);
await runtime.logIn();
const said = {};
if (words) {
  await runtime.graph.use(words);
  said.guid = runtime.graph.guid;
  said.before = runtime.graph.person?.userIds ?? null;
  runtime.graph.addUserId(add);
  await runtime.graph.publish();
}
if (card) Object.assign(said, await runtime.cardOf(card));
if (find) said.found = await runtime.graph.hyperties(find, { resources: ["chat"] });
console.log(JSON.stringify(said));
await runtime.close();
