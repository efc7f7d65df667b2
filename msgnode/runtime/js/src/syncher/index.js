/** Data objects: what an application imports as "msgnode-runtime/syncher". */

export { DataObjectObserver } from "./observer.js";
export { DataObjectReporter } from "./reporter.js";
export { Syncher } from "./syncher.js";
