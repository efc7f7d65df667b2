/** The runtime in Node.js. `WebSocket` is an option where there is no such class (before version 22). */

import { Runtime as AnyRuntime } from "./runtime.js";
import { openChildChannel } from "./sandbox/child-process.js";

const PLATFORM = {
  name: "node",
  capabilities: ["http", "https", "ws", "wss"],
  openChannel: openChildChannel,
  loadOwn: (source) => import(`data:text/javascript;base64,${Buffer.from(source).toString("base64")}`),
};

export class Runtime extends AnyRuntime {
  constructor(options) {
    super(options, PLATFORM);
  }
}

export * from "./common.js";
