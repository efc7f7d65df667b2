/** Runs one load of the runtime in Node.js: node runtime.mjs LOAD OPTIONS; prints its figures as JSON. */

import * as runtime from "../../msgnode/runtime/js/src/node.js";
import * as loads from "./runtime_loads.mjs";

const [load, options] = process.argv.slice(2);
console.log(JSON.stringify(await loads[load](runtime, JSON.parse(options))));
process.exit();
