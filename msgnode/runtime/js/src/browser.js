/** The runtime in a browser's page. */

import { Runtime as AnyRuntime } from "./runtime.js";

function platformOf({ sandboxPage } = {}) {
  if (sandboxPage !== undefined && !/^(https?:\/\/[^/]+)?\/[^*]*$/.test(sandboxPage)) {
    throw new TypeError(
      "sandboxPage is a path of this host or a URL, with a * in its host or without, such as https://*.sandbox.example/static/msgnode/runtime/sandbox/frame.html.",
    );
  }
  return {
    name: "browser",
    capabilities: ["http", "https", "ws", "wss", "webrtc", "datachannel", "mic", "camera"],
    prepare: () =>
      sandboxes().then(
        ({ prepareBrowserChannel }) => prepareBrowserChannel(),
        () => {}, // told to who opens one
      ),
    openChannel: async (request) =>
      (await sandboxes()).openBrowserChannel(request, { sandboxPage }),
    loadOwn,
  };
}

export class Runtime extends AnyRuntime {
  constructor(options) {
    super(options, platformOf(options));
  }
}

/** What only foreign stubs need. */
function sandboxes() {
  return import("./sandbox/browser.js");
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
