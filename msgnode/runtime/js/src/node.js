/** The runtime in Node.js. `WebSocket` is an option where there is no such class (before version 22). */

import { Runtime as AnyRuntime } from "./runtime.js";
import { ChildProcesses } from "./sandbox/child-process.js";

function platformOf(options) {
  const children = new ChildProcesses(options);
  return {
    name: "node",
    capabilities: ["http", "https", "ws", "wss"],
    prepare: () => children.prepare(),
    openChannel: (request) => children.open(request),
    close: () => children.close(),
    loadOwn: (source) =>
      import(`data:text/javascript;base64,${Buffer.from(source).toString("base64")}`),
  };
}

export class Runtime extends AnyRuntime {
  constructor(options) {
    super(options, platformOf(options));
  }
}

export * from "./common.js";
