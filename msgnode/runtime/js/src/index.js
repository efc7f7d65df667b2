/** The runtime for browsers. In Node.js import `node.js`: the same names, and that platform's sandbox. */

export { Runtime } from "./browser.js";
export * from "./common.js";
