/** The runtime: what applications import. In Node.js import `node.js`, which adds its sandbox. */

export { AnswerError, Bus } from "./bus.js";
export { MessageBus } from "./messagebus.js";
export { MiniBus } from "./minibus.js";
export { answerTo, codeOf, errorBody } from "./messages.js";
