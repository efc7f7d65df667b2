/** Stubs that do harm, and a good one; each says `created` before, so that it is let in. */

const BEGIN = `
const created = (url, bus) => bus.postMessage({ type: "update", from: url, to: url + "/status", body: { value: "created" } });
const report = (bus, body) => bus.postMessage({ type: "create", from: "hyperty://f/spy", to: "hyperty://d/report", body });
`;
const stub = (body, before = "") => `${BEGIN}
export async function activate(url, bus, config) {
  ${before}
  created(url, bus);
  bus.addListener("*", async (message) => { ${body} });
  return { name: "stub", instance: { connect() {}, disconnect() {} } };
}`;

/** Answers each request. */
export const GOOD = stub(
  `if (message.type !== "response") bus.postMessage({ id: message.id, type: "response", from: message.to, to: message.from, body: { code: 200, value: message.body } });`,
);
export const LOOP_AT_START = stub("", "for (;;);");
export const LOOP = stub("for (;;);");
export const MEMORY = stub(
  "const all = []; for (;;) all.push(new Array(100000).fill(Math.random()));",
);
export const BUFFERS = stub(
  "const all = []; const more = () => { all.push(new Uint8Array(8 * 1024 * 1024).fill(1)); setTimeout(more, 5); }; more();",
);
export const FORGER = stub(`for (const from of ["hyperty://d/victim", config.runtimeURL + "/sm"]) {
  bus.postMessage({ id: 1, type: "create", from, to: "hyperty://d/report", body: { forged: true } });
}`);
export const FLOOD = stub(`if (globalThis.floods) return;
  globalThis.floods = true;
  const more = () => {
  for (let n = 0; n < 2000; n += 1) bus.postMessage({ type: "create", from: "hyperty://f/spy", to: "hyperty://d/flooded", body: { text: "x".repeat(100) } });
  setTimeout(more);
}; more();`);
const outcome = `const tried = {};
const attempt = async (name, call) => {
  try { await call(); tried[name] = "done"; } catch (error) { tried[name] = String(error.code ?? error.name ?? error); }
};
const dial = (url) => new Promise((resolve, reject) => {
  const socket = new WebSocket(url);
  socket.onopen = resolve;
  socket.onclose = socket.onerror = () => reject(Object.assign(new Error(), { name: "refused" }));
});`;

/** Tries what reaches beyond a browser's sandbox; \`target\` is a server that is not the stub's. */
export const REACHES_IN_A_BROWSER = stub(`${outcome}
const { target, socketTarget } = message.body;
await attempt("fetch", () => fetch(target));
await attempt("socket", () => dial(socketTarget));
await attempt("import", () => import(target + "/x.js"));
await attempt("importScripts", () => importScripts(target + "/x.js"));
await attempt("storage", () => localStorage.getItem("x"));
await attempt("database", () => new Promise((resolve, reject) => {
  const request = indexedDB.open("x");
  request.onsuccess = resolve;
  request.onerror = () => reject(new Error("refused"));
}));
await attempt("cookie", () => {
  document.cookie = "reached=1";
  if (!document.cookie) throw new Error("WebKit has an empty one where others refuse");
});
await attempt("parent", () => parent.document.title);
await attempt("webrtc", () => new RTCPeerConnection());
report(bus, tried);`);

/** Tries what reaches beyond a child process. */
export const REACHES_IN_NODE = stub(`${outcome}
const { target, socketTarget, port } = message.body;
await attempt("read", async () => (await import("node:fs")).readFileSync("/etc/passwd"));
await attempt("write", async () => (await import("node:fs")).writeFileSync("/tmp/hostile", "x"));
await attempt("spawn", async () => (await import("node:child_process")).execSync("id"));
await attempt("worker", async () => new (await import("node:worker_threads")).Worker("1", { eval: true }));
await attempt("connect", async () => { const net = await import("node:net"); await new Promise((resolve, reject) => net.connect(port, "127.0.0.1", resolve).on("error", reject)); });
await attempt("socket class", async () => { const net = await import("node:net"); await new Promise((resolve, reject) => new net.Socket().connect(port, "127.0.0.1", resolve).on("error", reject)); });
await attempt("http", async () => { const http = await import("node:http"); await new Promise((resolve, reject) => http.get(target, resolve).on("error", reject)); });
await attempt("https", async () => { const https = await import("node:https"); await new Promise((resolve, reject) => https.get(target.replace("http:", "https:"), resolve).on("error", reject)); });
await attempt("http2", async () => { const http2 = await import("node:http2"); await new Promise((resolve, reject) => http2.connect(target).on("connect", resolve).on("error", reject)); });
await attempt("tls", async () => { const tls = await import("node:tls"); await new Promise((resolve, reject) => tls.connect(port, "127.0.0.1", resolve).on("error", reject)); });
await attempt("listen", async () => { const net = await import("node:net"); await new Promise((resolve, reject) => new net.Server().listen(0, resolve).on("error", reject)); });
await attempt("file socket", async () => { const net = await import("node:net"); await new Promise((resolve, reject) => new net.Socket().connect(message.body.path, resolve).on("error", reject)); });
await attempt("udp class", async () => { const { Socket } = await import("node:dgram"); new Socket("udp4").send("x", port, "127.0.0.1"); });
await attempt("resolver", async () => { const { Resolver } = await import("node:dns/promises"); const resolver = new Resolver(); resolver.setServers(["127.0.0.1:" + port]); await resolver.resolve6("example.org"); });
await attempt("inspector", async () => (await import("node:inspector")).open(0));
await attempt("wasi", async () => new (await import("node:wasi")).WASI({ version: "preview1", preopens: { "/": "/" } }));
await attempt("database", async () => new (await import("node:sqlite")).DatabaseSync("/tmp/hostile.db"));
await attempt("report", () => process.report.writeReport("/tmp/hostile.json"));
await attempt("load a file of variables", () => process.loadEnvFile("/proc/self/environ"));
await attempt("another program", () => process.execve("/bin/true", ["true"]));
await attempt("error stream", async () => { await new Promise((resolve, reject) => new process.stderr.constructor().connect(port, "127.0.0.1", resolve).on("error", reject)); });
await attempt("require", async () => (await import("node:module")).createRequire("file:///x.js")("node:fs").readFileSync("/etc/passwd"));
await attempt("udp", async () => { const { createSocket } = await import("node:dgram"); createSocket("udp4"); });
await attempt("name", async () => (await import("node:dns/promises")).lookup("example.org"));
await attempt("fetch", () => fetch(target));
await attempt("socket", () => dial(socketTarget));
await attempt("kill", () => process.kill(process.ppid, 0));
await attempt("binding", () => process.binding("tcp_wrap"));
tried.environment = Object.keys(process.env).length;
report(bus, tried);`);
