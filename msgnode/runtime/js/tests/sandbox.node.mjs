/** The sandbox of Node.js: cases R40 to R43, R46, R47 of the runtime, with real child processes. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer as createNetServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { Runtime } from "../src/node.js";
import { dialling } from "../src/sandbox/sockets.js";
import { Syncher } from "../src/syncher/index.js";
import * as hostile from "./hostile.mjs";
import { answer, beside, cases, create, entry, heard, runtime, use } from "./sandboxes.mjs";
import { descriptorOf, until } from "./world.mjs";

let server;
let port;
let sources = {};
let hits = [];

/** A Unix socket of this machine, as daemons have them. */
const sockets = { path: join(mkdtempSync(join(tmpdir(), "sandbox-")), "daemon"), connected: 0 };
const daemon = createNetServer(() => (sockets.connected += 1));

before(async () => {
  await new Promise((resolve) => daemon.listen(sockets.path, resolve));
  server = createServer(async ({ url, headers }, answer) => {
    const [, domain] = url.split("/");
    if (!sources[domain]) {
      hits.push(url);
      answer.writeHead(404).end();
      return;
    }
    const descriptor = await descriptorOf(domain, sources[domain]);
    descriptor.configuration = { url: `ws://${headers.host}/ws` };
    answer.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(descriptor));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  ({ port } = server.address());
});
after(() => {
  server.close();
  daemon.close();
  rmSync(dirname(sockets.path), { recursive: true });
});
afterEach(() => {
  hits = [];
});

function begin(stubs, options = {}) {
  sources = stubs;
  const catalogues = Object.fromEntries(
    ["d", ...Object.keys(stubs)].map((domain) => [domain, `http://127.0.0.1:${port}/${domain}`]),
  );
  use(new Runtime({ domain: "d", catalogues, ...options }));
}

cases(begin, "a child process");

for (const [what, source] of [
  ["objects", hostile.MEMORY],
  ["buffers outside the heap", hostile.BUFFERS],
]) {
  test(`R41 a stub that takes memory without end (${what}) is dead, and started again under its URL`, async () => {
    await beside(begin, source, { times: { leastRestart: 200 } }, async () => {
      runtime.bus.postMessage({
        type: "update",
        from: "hyperty://d/a",
        to: "hyperty://f/x",
        body: {},
      });
      await until(() => entry("f")?.url, "its URL", 30_000);
      const { url } = entry("f");
      const told = heard(`${runtime.url}/status`);
      const died = () =>
        told.some(({ body }) => body.resource === url && body.value === "disconnected");
      await until(died, "its end", 60_000);
      await until(() => entry("f").status === "created", "its return", 30_000);
      assert.equal(entry("f").url, url);
    });
  });
}

test("R42 a stub reaches no file, process, worker, host, environment or parent", async () => {
  await beside(begin, hostile.REACHES_IN_NODE, {}, async () => {
    const reports = heard("hyperty://d/report");
    const target = `http://127.0.0.1:${port}/secret`;
    runtime.bus.postMessage(
      create("hyperty://f/x", {
        target,
        port,
        path: sockets.path,
        socketTarget: `ws://localhost:${port}/other`,
      }),
    );
    await until(() => reports.length, "the report", 30_000);
    const { via: _, environment, ...tried } = reports[0].body;
    assert.equal(environment, 0);
    assert.equal(Object.keys(tried).length, 28);
    assert.deepEqual(
      Object.entries(tried).filter(([, result]) => result === "done"),
      [],
    );
    assert.deepEqual(
      hits.filter((url) => /secret|other/.test(url)),
      [],
    );
    assert.equal(sockets.connected, 0);
  });
});

test("R42 where the machine cannot isolate, `required` refuses a foreign stub with 501", async (context) => {
  begin({ g: hostile.GOOD }, { isolation: "required" });
  const { code } = await answer(create("hyperty://g/x"));
  assert.ok([200, 501].includes(code));
  context.diagnostic(`this machine ${code === 200 ? "isolates" : "does not isolate"} the network`);
});

test("R46 the processes of two domains are two", async () => {
  begin({ "a.example": hostile.GOOD, "aa.example": hostile.GOOD });
  await answer(create("hyperty://a.example/x"));
  await answer(create("hyperty://aa.example/x"));
  assert.notEqual(entry("a.example").sandbox, entry("aa.example").sandbox);
});

/** Nodes that open a session, and read nothing after that: their sockets. */
function deafNodes(context) {
  const sockets = [];
  const letIn = ({ headers }, socket) => {
    const key = createHash("sha1")
      .update(`${headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest("base64");
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\n\r\n`,
    );
    socket.once("data", () => {
      const text = JSON.stringify({
        id: 1,
        type: "response",
        from: "mn:/session",
        to: runtime.url,
        body: { code: 200, runtimeToken: "t" },
      });
      socket.write(
        Buffer.concat([
          Buffer.from([0x81, 126, text.length >> 8, text.length & 255]),
          Buffer.from(text),
        ]),
      );
      socket.pause();
    });
    socket.on("error", () => {});
    sockets.push(socket);
  };
  server.on("upgrade", letIn);
  context.after(() => {
    server.off("upgrade", letIn);
    for (const socket of sockets) socket.destroy();
  });
  return sockets;
}

test("a stub in a child process waits for a node that does not read, and knows what was lost with its socket", async (context) => {
  const sockets = deafNodes(context);
  begin(
    { f: readFileSync(new URL("../src/protostub.js", import.meta.url), "utf8") },
    { times: { leastRestart: 60_000 } },
  );
  const told = heard(`${runtime.url}/status`);
  const text = "x".repeat(100_000);
  const refused = [];
  for (let n = 0; n < 250; n += 1) {
    const message = { type: "create", from: "hyperty://d/a", to: "hyperty://f/x", body: { text } };
    runtime.bus.postMessage(message, ({ body }) => refused.push(body.desc));
    if (n === 0) await until(() => entry("f")?.status === "live", "the session", 30_000);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await until(
    () => refused.includes("Too many messages wait for the node."),
    "the stub's refusal",
    30_000,
  );
  assert.equal(entry("f").status, "live");
  sockets.forEach((socket) => socket.destroy());
  await until(() => told.some(({ body }) => /on their way out/.test(body.desc)), "the gap", 30_000);
});

test("a stub whose node is away dials it as often as it likes, though Node.js 20 says of no socket that it is closed", async () => {
  const url = "ws://127.0.0.1:1/"; // nobody listens
  const told = [];
  const sockets = dialling((frame) => told.push(frame), url, WebSocket, assert.fail);
  for (let socket = 0; socket < 6; socket += 1) {
    sockets.heard({ socket, open: url });
    await until(
      () => told.some((each) => each.socket === socket && each.event === "close"),
      "close",
    );
  }
  assert.ok(!told.some(({ reason }) => reason), JSON.stringify(told));
  sockets.close();
});

test("R54 a closed runtime leaves no process behind", async () => {
  begin({ g: hostile.GOOD });
  await answer(create("hyperty://g/x"));
  const children = () => readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").trim();
  const during = process.platform === "linux" ? children() : "";
  await runtime.close();
  if (process.platform === "linux") {
    assert.notEqual(during, "");
    await until(() => children() === "", "the end of the processes");
  }
});

test("a hyperty in a sandbox speaks as itself and nobody else", async () => {
  begin({});
  const heardThere = heard("hyperty://d/other");
  const { url } = await runtime.deployHyperty(`
    export function activate(url, bus) {
      for (const from of [url, "hyperty://d/victim"]) bus.postMessage({ type: "create", from, to: "hyperty://d/other", body: {} });
      bus.addListener(url, ({ id, from, to, body }) => bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200, value: body } }));
    }`);
  const { value } = await runtime.bus.request(create(url, { n: 1 }));
  assert.deepEqual(value, { n: 1 });
  assert.deepEqual(
    heardThere.map(({ from }) => from),
    [url],
  );
  assert.equal(runtime.counters["stub.forged"], 1);
});

test("a hyperty in a sandbox reports objects, hears them, and speaks as no other's", async () => {
  begin({});
  const { url } = await runtime.deployHyperty(`
    export function activate(url, bus, { runtimeURL }) {
      let object;
      const value = { data: { n: 1 }, domain_routing: false };
      bus.postMessage({ type: "create", from: url, to: runtimeURL + "/sm", body: { schema: "Communication", value } }, ({ body }) => {
        object = body.resource;
        bus.addListener(object, ({ id, from, to }) => bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200, value: { object } } }));
      });
      bus.addListener(url, ({ id, type, from, to, body }) => {
        if (type === "forward") bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200, value: { data: { n: 1 }, version: 0 } } });
        else {
          for (const sender of body.other ? [object, body.other] : []) bus.postMessage({ type: "update", from: sender, to: object + "/changes", body: { version: 1, attribute: "n", value: 2 } });
          bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200, value: object } });
        }
      });
    }`);
  const own = new Syncher(runtime.addHyperty());
  const other = await own.create({ n: 0 }, { domain_routing: false });
  const heardThere = heard(`${other.url}/changes`);
  let object;
  while (!object) ({ value: object } = await runtime.bus.request(create(url, {})));
  assert.match(object, /^comm:\/\/d\//);
  assert.equal(
    (await runtime.bus.request({ type: "read", from: `${runtime.url}/app`, to: object })).value
      .object,
    object,
  );
  const copy = await own.subscribe(object);
  await runtime.bus.request(create(url, { other: other.url }));
  await until(() => copy.data.n === 2, "the change");
  assert.deepEqual(heardThere, []);
  assert.equal(runtime.counters["stub.forged"], 1);
});
