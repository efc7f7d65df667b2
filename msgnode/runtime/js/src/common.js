/** What applications import on every platform, beside the Runtime: what is loaded with it. Other parts come when they are used. */

export { AnswerError, Bus } from "./bus.js";
export { Catalogue } from "./catalogue.js";
export { checkDescriptor } from "./descriptor.js";
export { CardError, GraphError, LoadError } from "./errors.js";
export { Hyperty } from "./hyperties.js";
export { newId } from "./ids.js";
export { Loader } from "./loader.js";
export { MessageBus } from "./messagebus.js";
export { answerTo, codeOf, errorBody } from "./messages.js";
export { MiniBus } from "./minibus.js";
export { Resolver } from "./resolver.js";
export { StubList } from "./stub-list.js";
export { Refusal } from "./syncher/talk.js";
