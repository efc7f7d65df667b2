/** What applications import on every platform, beside the Runtime. */

export { AnswerError, Bus } from "./bus.js";
export { CardError } from "./cards.js";
export { Catalogue } from "./catalogue.js";
export { checkDescriptor } from "./descriptor.js";
export { LoadError } from "./errors.js";
export { Contacts } from "./graph/contacts.js";
export { GraphError } from "./graph/errors.js";
export { GraphConnector } from "./graph/graph-connector.js";
export { Hyperty } from "./hyperties.js";
export { newId } from "./ids.js";
export { Invitations } from "./invitations.js";
export { Loader } from "./loader.js";
export { MessageBus } from "./messagebus.js";
export { answerTo, codeOf, errorBody } from "./messages.js";
export { MiniBus } from "./minibus.js";
export { OpenId, OpenIdError, openid } from "./openid.js";
export { Qos, Reservation } from "./qos.js";
export { Resolver } from "./resolver.js";
export { StubList } from "./stub-list.js";
export { DataObjectObserver } from "./syncher/observer.js";
export { DataObjectReporter } from "./syncher/reporter.js";
export { Syncher } from "./syncher/syncher.js";
export { Refusal } from "./syncher/talk.js";
