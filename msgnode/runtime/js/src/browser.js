/** The runtime in a browser's page. */

import { Runtime as AnyRuntime } from "./runtime.js";
import { openBrowserChannel } from "./sandbox/browser.js";

const PLATFORM = {
  name: "browser",
  capabilities: ["http", "https", "ws", "wss", "webrtc", "datachannel", "mic", "camera"],
  openChannel: openBrowserChannel,
  loadOwn,
};

export class Runtime extends AnyRuntime {
  constructor(options) {
    super(options, PLATFORM);
  }
}

/** A page that came from the stub's own origin trusts its scripts anyway; its policy may forbid others. */
async function loadOwn(source, script) {
  if (new URL(script, location.href).origin === location.origin) return import(script);
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}
