/**
 * The first script in the frame of a sandbox: waits for the page's port, sets the policy of
 * connections, and hands the port on to a worker, or to the script itself for what needs a window.
 *
 * A plain script: in frame.html it is served, else it is a part of the frame's text. It does nothing
 * in a document that has an origin, so that nobody can have code run at the origin it was served from.
 */
(() => {
  const nonce = document.documentElement.dataset.nonce || location.hash.slice(1);
  if (self.origin !== "null" || !nonce) return;
  addEventListener("message", function take({ source, data, ports }) {
    if (source !== parent || data?.nonce !== nonce) return;
    removeEventListener("message", take);
    const { policy, script, limits, isWindow } = data;
    const meta = document.createElement("meta");
    meta.httpEquiv = "Content-Security-Policy";
    meta.content = policy;
    document.head.append(meta);
    if (isWindow) {
      new Function("port", "limits", script)(ports[0], limits);
      return;
    }
    const start = `onmessage = ({ data, ports }) => { onmessage = null; new Function("port", "limits", data.script)(ports[0], data.limits); };`;
    const worker = new Worker(URL.createObjectURL(new Blob([start], { type: "text/javascript" })));
    worker.postMessage({ script, limits }, [ports[0]]);
  });
})();
