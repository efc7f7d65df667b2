/** A runtime in Node.js that looks for persons: does one order, given as JSON, and prints what it saw. */

import { Runtime } from "../../msgnode/runtime/js/src/node.js";

const { options, find, card } = JSON.parse(process.argv[2]);
const runtime = new Runtime(options);
await runtime.logIn();
const graph = await runtime.graph;
const said = {};
if (card) Object.assign(said, await runtime.cardOf(card));
if (find) said.found = await graph.hyperties(find, { resources: ["chat"] });
console.log(JSON.stringify(said));
await runtime.close();
