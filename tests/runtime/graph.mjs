/** A runtime in Node.js that looks for a person, and prints what it found. */

import { Runtime } from "../../msgnode/runtime/js/src/node.js";

const { options, find } = JSON.parse(process.argv[2]);
const runtime = new Runtime(options);
await runtime.logIn();
const found = await (await runtime.graph).hyperties(find, { resources: ["chat"] });
console.log(JSON.stringify({ found }));
await runtime.close();
