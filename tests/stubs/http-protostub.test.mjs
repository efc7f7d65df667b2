/** The stub over HTTP, step by step: on a scripted `fetch`. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { activate } from "../../msgnode/runtime/js/src/protostub.js";
import { HttpSocket } from "../../msgnode/runtime/js/src/http-protostub.js";

const STUB = "runtime://d/protostub/1";
const ME = "runtime://d/me";
const URL_ = "http://d/device/v1";
const encoder = new TextEncoder();

let node;
let bus;
let stub;

/** The node as `fetch` sees it: `answers` are given in order by path, `streams` are those opened. */
class FakeNode {
  requests = [];
  streams = [];
  answers = {};
  #waiting = [];

  fetch = async (url, { method = "GET", headers = {}, body, signal } = {}) => {
    const path = url.slice(URL_.length);
    const request = { method, path, headers, body: body ? JSON.parse(body) : undefined };
    this.requests.push(request);
    this.#waiting.splice(0).forEach((look) => look());
    if (path === "/events") return this.#stream(signal, headers);
    const answer = (this.answers[`${method} ${path}`] ?? []).shift() ?? this.usual(request);
    if (answer instanceof Error) throw answer;
    return Response.json(answer.body ?? {}, { status: answer.status });
  };

  usual({ method, path, body }) {
    if (path === "/sessions") return { status: 201, body: { token: "mns_a.t1", runtimeURL: ME } };
    if (path === "/sessions/current" && method === "PUT")
      return { status: 200, body: { token: "mns_a.t1", resumed: true } };
    if (path === "/sessions/current") return { status: 200 };
    return { status: 207, body: body.map(({ id }) => ({ id, code: 202 })) };
  }

  #stream(signal, headers) {
    let controller;
    const body = new ReadableStream({ start: (made) => (controller = made) });
    signal.addEventListener("abort", () => controller.error(new Error("aborted")));
    const stream = {
      headers,
      says: (text) => controller.enqueue(encoder.encode(text)),
      event: (name, data, id) =>
        stream.says(`${id ? `id: ${id}\n` : ""}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`),
      ends: () => controller.close(),
    };
    this.streams.push(stream);
    return new Response(body, { status: 200 });
  }

  async seen(wanted) {
    while (!this.requests.some(wanted)) await new Promise((resolve) => this.#waiting.push(resolve));
    return this.requests.find(wanted);
  }

  posts() {
    return this.requests.filter(({ path }) => path.startsWith("/messages"));
  }
}

function load(config = {}) {
  const waiting = [];
  bus = {
    got: [],
    outgoing: [],
    addListener: (address, listener) => address === "*" && bus.outgoing.push(listener),
    postMessage: (message) => {
      bus.got.push(message);
      waiting.splice(0).forEach((look) => look());
    },
    send: (message) => bus.outgoing.forEach((listener) => listener(message)),
    got_: async (wanted) => {
      while (!bus.got.some(wanted)) await new Promise((resolve) => waiting.push(resolve));
      return bus.got.find(wanted);
    },
  };
  stub = activate(STUB, bus, {
    url: URL_,
    runtimeURL: ME,
    WebSocket: HttpSocket,
    minDelay: 5,
    maxDelay: 10,
    ...config,
  }).instance;
}

const status = (value) =>
  bus.got_((each) => each.to === `${STUB}/status` && each.body.value === value);
const statuses = () =>
  bus.got.filter((each) => each.to === `${STUB}/status`).map((each) => each.body.value);
const request = (id) => ({ id, type: "read", from: `${ME}/x`, to: "comm://d/o", body: {} });
const stream = async () => {
  await node.seen(({ path }) => path === "/events");
  return node.streams.at(-1);
};

const known = globalThis.fetch;

beforeEach(() => {
  node = new FakeNode();
  globalThis.fetch = node.fetch;
  load();
});

afterEach(async () => {
  await stub.disconnect();
  globalThis.fetch = known;
});

test("it opens a session, and what it is told comes to the bus", async () => {
  assert.equal(await stub.connect("proof"), "live");
  const [opened] = node.requests;
  assert.equal(opened.headers.Authorization, "Bearer proof");
  assert.deepEqual(opened.body, { runtimeURL: ME });
  const events = await stream();
  assert.equal(events.headers.Authorization, "Bearer mns_a.t1");
  events.event(
    "message",
    { id: 7, type: "create", from: "runtime://d/you", to: ME, body: { value: "ü" } },
    "e-1",
  );
  assert.equal((await bus.got_(({ id }) => id === 7)).body.value, "ü");
});

test("no token is ever part of a URL", async () => {
  await stub.connect("proof");
  bus.send(request(1));
  await node.seen(({ path }) => path.startsWith("/messages"));
  assert.ok(node.requests.every(({ path }) => !path.includes("mns_") && !path.includes("proof")));
});

test("an event that is cut anywhere is whole", async () => {
  await stub.connect();
  const events = await stream();
  const text = `retry: 1000\n\n:\n\nid: e-1\nevent: message\ndata: ${JSON.stringify({ id: 7, type: "create", from: "a://b", to: ME, body: {} })}\n\n`;
  for (const character of text) events.says(character);
  assert.equal((await bus.got_(({ id }) => id === 7)).type, "create");
});

test("messages go up in order, many in one request, one request at a time", async () => {
  await stub.connect();
  for (let id = 1; id <= 250; id += 1) bus.send(request(id));
  await node.seen(({ body }) => Array.isArray(body) && body.at(-1).id === 250);
  const ids = node.posts().flatMap(({ body }) => body.map(({ id }) => id));
  assert.deepEqual(
    ids,
    Array.from({ length: 250 }, (_, at) => at + 1),
  );
  assert.ok(node.posts().length < 10);
  assert.ok(node.posts().every(({ body }) => body.length <= 100));
});

test("a request that was not answered is repeated under its key", async () => {
  await stub.connect();
  node.answers["POST /messages?responses=events"] = [
    new Error("reset"),
    { status: 503, body: { detail: "later" } },
  ];
  bus.send(request(1));
  await node.seen(() => node.posts().length === 3);
  const keys = new Set(node.posts().map(({ headers }) => headers["Idempotency-Key"]));
  assert.equal(keys.size, 1);
  bus.send(request(2));
  await node.seen(() => node.posts().length === 4);
  assert.notEqual(node.posts()[3].headers["Idempotency-Key"], [...keys][0]);
});

test("a message that is refused is answered, and the others go out", async () => {
  await stub.connect();
  const body = [
    { id: 1, code: 400, detail: "no such type" },
    { id: 2, code: 202 },
  ];
  node.answers["POST /messages?responses=events"] = [
    { status: 207, body: [body[1]] },
    { status: 207, body },
  ];
  bus.send(request(0));
  bus.send(request(1));
  bus.send(request(2));
  const answer = await bus.got_(({ type }) => type === "response");
  assert.deepEqual([answer.id, answer.body.code, answer.body.desc], [1, 400, "no such type"]);
});

test("after a break it goes on behind the last event", async () => {
  await stub.connect();
  const events = await stream();
  events.event("message", { id: 7, type: "create", from: "a://b", to: ME, body: {} }, "e-41");
  await bus.got_(({ id }) => id === 7);
  events.ends();
  await status("disconnected");
  const resumed = await node.seen(
    ({ method, path }) => method === "PUT" && path === "/sessions/current",
  );
  assert.equal(resumed.headers.Authorization, "Bearer mns_a.t1");
  await node.seen(() => node.streams.length === 2);
  assert.equal(node.streams[1].headers["Last-Event-ID"], "e-41");
  assert.ok(!statuses().includes("gap"));
});

test("what the node lost is a gap", async () => {
  await stub.connect();
  (await stream()).event("gap", {});
  await status("gap");
});

test("a node that restarts is returned to, and nothing is asked for again", async () => {
  load({ stagger: 0 });
  await stub.connect();
  const events = await stream();
  events.event("message", { id: 7, type: "create", from: "a://b", to: ME, body: {} }, "e-1");
  events.event("close", { code: 3001, reason: "the node restarts" });
  await status("disconnected");
  await node.seen(() => node.streams.length === 2);
  assert.equal(node.streams[1].headers["Last-Event-ID"], undefined);
});

test("a refusal for good is one", async () => {
  await stub.connect();
  (await stream()).event("close", { code: 4403, reason: "ended by the operator" });
  assert.equal((await status("failed")).body.desc, "ended by the operator");
});

test("a session that is refused says why", async () => {
  node.answers["POST /sessions"] = [{ status: 403, body: { detail: "banned from this node" } }];
  assert.equal(await stub.connect(), "failed");
  assert.equal((await status("failed")).body.desc, "banned from this node");
});

test("disconnecting closes the session after what was said before", async () => {
  await stub.connect();
  bus.send(request(1));
  await stub.disconnect();
  const said = node.requests.map(({ method, path }) => `${method} ${path}`);
  assert.ok(
    said.indexOf("POST /messages?responses=events") < said.indexOf("DELETE /sessions/current"),
    said.join(),
  );
});

test("a URL that is none of HTTP is a failure, not a loop", async () => {
  load({ url: "ws://d/ws" });
  assert.equal(await stub.connect(), "failed");
});
