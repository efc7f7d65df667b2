/** Local policies: the node's policy language for a runtime's own bus. Pure but for the handler's clock. */

export { PolicyEngine, PolicyError } from "./engine.js";
export { CannotTell, Facts } from "./facts.js";
export { policyHandler } from "./handler.js";
export { rewritten } from "./rewriting.js";
