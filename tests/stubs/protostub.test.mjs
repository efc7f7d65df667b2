/** Case 54, step by step: the JavaScript stub on a scripted socket and a clock that we turn. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import Stub, { DEFAULTS, activate, backOff } from "../../msgnode/runtime/js/src/protostub.js";

const STUB = "runtime://d/protostub/1";
const ME = "runtime://d/me";

let sockets;
let bus;
let stub;

class FakeSocket {
  readyState = 0;
  bufferedAmount = 0;
  sent = [];

  constructor(url) {
    if (url === "no url") throw new SyntaxError("not a URL");
    this.url = url;
    sockets.push(this);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close(code = 1005) {
    this.readyState = 3;
    this.closedWith = code;
  }

  // What the node does.
  opens() {
    this.readyState = 1;
    this.onopen();
  }

  says(message) {
    this.onmessage({ data: typeof message === "string" ? message : JSON.stringify(message) });
  }

  answers(body) {
    const asked = this.sent.findLast((frame) => frame.to === "mn:/session");
    this.says({ id: asked.id, type: "response", from: "mn:/session", to: asked.from, body });
  }

  closes(code, reason = "") {
    this.readyState = 3;
    this.onclose({ code, reason });
  }
}

const socket = () => sockets.at(-1);
const messages = () => socket().sent.filter((frame) => frame.to !== "mn:/session");
const statuses = () =>
  bus.got.filter((each) => each.to === `${STUB}/status`).map((each) => each.body.value);
const request = (id, more = {}) => ({
  id,
  type: "read",
  from: `${ME}/x`,
  to: "comm://d/o",
  body: {},
  ...more,
});
const change = (value) => ({
  id: 1,
  type: "update",
  from: "comm://d/o",
  to: "comm://d/o/changes",
  body: { value },
});

function load(config = {}) {
  bus = {
    got: [],
    outgoing: [],
    addListener: (address, listener) => address === "*" && bus.outgoing.push(listener),
    postMessage: (message) => bus.got.push(message),
    send: (message) => bus.outgoing.forEach((listener) => listener(message)),
  };
  const settings = { url: "ws://d/ws", runtimeURL: ME, WebSocket: FakeSocket, ...config };
  stub = activate(STUB, bus, settings).instance;
}

function goLive(token = "t1") {
  stub.connect();
  socket().opens();
  socket().answers({ code: 200, runtimeToken: token });
}

beforeEach(() => {
  sockets = [];
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  load();
});

afterEach(() => mock.timers.reset());

// --- loading --------------------------------------------------------------------------------------

test("activate() gives a name and an instance", () => {
  const loaded = activate(STUB, bus, {});
  assert.equal(typeof loaded.name, "string");
  assert.ok(loaded.instance.connect && loaded.instance.disconnect);
  assert.equal(Stub.activate, activate, "loaders that look under `default` find it too");
});

test("the default export is a class with _start()", () => {
  const instance = new Stub();
  instance._start(STUB, bus, { url: "ws://d/ws", runtimeURL: ME, WebSocket: FakeSocket }, {});
  assert.equal(instance.state, "created");
});

test("without a WebSocket class it fails and says why", async () => {
  const known = globalThis.WebSocket;
  delete globalThis.WebSocket;
  load({ WebSocket: undefined });
  assert.equal(await stub.connect(), "failed");
  assert.match(bus.got.at(-1).body.desc, /give one as `WebSocket`/);
  if (known) globalThis.WebSocket = known;
});

test("a URL that is none is a failure, not a loop", async () => {
  load({ url: "no url" });
  assert.equal(await stub.connect(), "failed");
});

// --- the session ----------------------------------------------------------------------------------

test("the first message connects, and leaves when the session is open", () => {
  bus.send(request(1));
  assert.deepEqual(statuses(), ["created", "in-progress"]);
  socket().opens();
  assert.deepEqual(socket().sent, [{ id: 1, type: "open", from: ME, to: "mn:/session" }]);
  socket().answers({ code: 200, runtimeToken: "t1" });
  assert.deepEqual(statuses(), ["created", "in-progress", "live"]);
  assert.equal(messages()[0].id, 1);
});

test("connect() carries an identity and resolves when live", async () => {
  const settled = stub.connect({ token: "x" });
  socket().opens();
  assert.deepEqual(socket().sent[0].body, { identity: { token: "x" } });
  socket().answers({ code: 200, runtimeToken: "t1" });
  assert.equal(await settled, "live");
});

test("a lost session is opened again with its token", () => {
  goLive("t1");
  socket().closes(1006);
  assert.equal(stub.state, "disconnected");
  mock.timers.tick(DEFAULTS.minDelay);
  socket().opens();
  assert.equal(socket().sent[0].type, "re-open");
  assert.equal(socket().sent[0].from, `${ME}/t1`);
  socket().answers({ code: 200 });
  assert.deepEqual(statuses().slice(-2), ["disconnected", "live"]);
});

test("a token in the answer to re-open is taken over, and is a gap", () => {
  goLive("t1");
  socket().closes(1006);
  mock.timers.tick(DEFAULTS.minDelay);
  socket().opens();
  socket().answers({ code: 200, runtimeToken: "t2" });
  assert.deepEqual(statuses().slice(-2), ["live", "gap"]);
  socket().closes(1006);
  mock.timers.tick(DEFAULTS.maxDelay);
  socket().opens();
  assert.equal(socket().sent[0].from, `${ME}/t2`);
});

const SM = "domain://msg-node.d/sm";
const subscribe = (id, resources, type = "subscribe") => ({
  id,
  type,
  from: `${ME}/sm`,
  to: SM,
  body: { resources, source: ME },
});
const grant = ({ id, from, to }, code = 200) =>
  socket().says({ id, type: "response", from: to, to: from, body: { code } });

test("R51 a new session gets what the node had granted before what waits; the same session does not", () => {
  const many = Array.from({ length: 150 }, (_, n) => `comm://d/${n}/changes`);
  goLive();
  for (const [n, message] of [
    subscribe(1, many),
    subscribe(2, ["comm://d/refused"]),
    subscribe(3, ["comm://d/0/changes"], "unsubscribe"),
  ].entries()) {
    bus.send(message);
    grant(message, n === 1 ? 403 : 200);
  }
  socket().closes(1006);
  mock.timers.tick(250);
  socket().opens();
  socket().answers({ code: 200 });
  assert.deepEqual(messages(), [], "the same session: nothing is announced");
  socket().closes(1006);
  bus.send(request(9));
  mock.timers.tick(1000);
  socket().opens();
  socket().answers({ code: 200, runtimeToken: "t2" });
  const [first, second, last] = messages();
  assert.deepEqual(
    [first, second].map(({ type, from, to, body }) => [type, from, to, body.source]),
    Array(2).fill(["subscribe", `${ME}/sm`, SM, ME]),
  );
  assert.deepEqual([...first.body.resources, ...second.body.resources], many.slice(1));
  assert.equal(first.body.resources.length, 100);
  assert.equal(last.id, 9);
  assert.equal(statuses().at(-1), "gap");
  const told = bus.got.length;
  grant(first);
  assert.equal(bus.got.length, told, "the answer is nobody else's");
  grant(second, 403);
  assert.deepEqual(
    [statuses().at(-1), bus.got.at(-1).body.desc],
    ["gap", "The node answers 403 to 49 addresses that it held before."],
  );
});

test("a node that answers re-open with 500 is asked for a new session", () => {
  goLive("t1");
  socket().closes(1006);
  mock.timers.tick(DEFAULTS.minDelay);
  socket().opens();
  socket().answers({ code: 500, desc: "Reconnection fail. Incorrect runtime token!" });
  assert.deepEqual(socket().sent.at(-1), { id: 3, type: "open", from: ME, to: "mn:/session" });
  socket().answers({ code: 200, runtimeToken: "t2" });
  assert.deepEqual(statuses().slice(-2), ["live", "gap"]);
});

test("no answer within 3 s is a disconnection, and another try", () => {
  stub.connect();
  socket().opens();
  mock.timers.tick(2999);
  assert.equal(stub.state, "in-progress");
  mock.timers.tick(1);
  assert.equal(stub.state, "disconnected");
  assert.match(bus.got.at(-1).body.desc, /Timeout from mn:\/session/);
  mock.timers.tick(DEFAULTS.minDelay);
  assert.equal(sockets.length, 2);
});

test("a refused session fails with the node's words, and its messages are answered", async () => {
  bus.send(request(7));
  socket().opens();
  socket().answers({ code: 403, desc: "in use" });
  assert.equal(stub.state, "failed");
  const [status, answer] = bus.got.slice(-2);
  assert.equal(status.body.desc, "in use");
  assert.deepEqual(
    [answer.id, answer.type, answer.from, answer.to],
    [7, "response", "comm://d/o", `${ME}/x`],
  );
  assert.equal(answer.body.code, 403);
});

test("a session whose identity has ended waits for a newer one, with what waits for it, and goes on", async () => {
  for (const given of [{ assertion: "newer" }, undefined]) {
    load();
    stub.connect({ assertion: "older" });
    socket().opens();
    socket().answers({ code: 200, runtimeToken: "t1" });
    socket().closes(1006);
    bus.send(request(1));
    mock.timers.tick(DEFAULTS.minDelay);
    socket().opens();
    socket().answers({ code: 401, desc: "It has ended." });
    assert.equal(statuses().at(-1), "in-progress");
    if (given) {
      stub.connect(given);
      socket().opens();
      const [asked] = socket().sent;
      assert.deepEqual(
        [asked.type, asked.from, asked.body.identity],
        ["re-open", `${ME}/t1`, given],
      );
      socket().answers({ code: 200 });
      assert.deepEqual(
        messages().map(({ id }) => id),
        [1],
      );
    } else {
      mock.timers.tick(DEFAULTS.identityTimeout);
      assert.equal(statuses().at(-1), "failed");
      assert.equal(bus.got.at(-1).body.code, 401);
    }
  }
});

test("an error that no close follows, as of Node.js 20 where nobody listens, is a lost connection", () => {
  stub.connect();
  socket().onerror({});
  mock.timers.tick(100);
  assert.equal(statuses().at(-1), "disconnected");
  mock.timers.tick(DEFAULTS.minDelay);
  assert.equal(sockets.length, 2);
});

test("a node that cannot store the session now is tried again", () => {
  stub.connect();
  socket().opens();
  socket().answers({ code: 503, desc: "later" });
  assert.equal(stub.state, "disconnected");
  mock.timers.tick(DEFAULTS.minDelay);
  assert.equal(sockets.length, 2);
});

test("disconnect() says good-bye with the session's URL, and a later connect() opens a new session", async () => {
  goLive("t1");
  const gone = stub.disconnect();
  assert.deepEqual(socket().sent.at(-1), {
    id: 2,
    type: "close",
    from: `${ME}/t1`,
    to: "mn:/session",
  });
  socket().onclose({ code: 1000 });
  await gone;
  mock.timers.tick(60_000);
  assert.equal(sockets.length, 1);
  stub.connect();
  socket().opens();
  assert.deepEqual(socket().sent, [{ id: 3, type: "open", from: ME, to: "mn:/session" }]);
});

// --- close codes and delays -----------------------------------------------------------------------

for (const code of [4403, 4409]) {
  test(`after ${code} it does not return, and messages are answered 503`, () => {
    goLive();
    socket().closes(code, "because");
    assert.equal(stub.state, "failed");
    mock.timers.tick(3_600_000);
    assert.equal(sockets.length, 1);
    bus.send(request(3));
    assert.equal(bus.got.at(-1).body.code, 503);
    assert.equal(sockets.length, 1);
  });
}

for (const code of [1000, 1001, 1006, 3008, 4400, 4401, 4413, 4429]) {
  test(`after ${code} it returns`, () => {
    goLive();
    socket().closes(code);
    assert.equal(stub.state, "disconnected");
    mock.timers.tick(DEFAULTS.minDelay);
    assert.equal(sockets.length, 2);
  });
}

test("after 3001 runtimes return one by one", () => {
  const delays = new Set();
  for (let round = 0; round < 20; round += 1) {
    sockets = [];
    load();
    goLive();
    socket().closes(3001, "the node restarts");
    let waited = 0;
    while (sockets.length === 1) (mock.timers.tick(50), (waited += 50));
    assert.ok(waited <= DEFAULTS.stagger + DEFAULTS.minDelay + 50);
    delays.add(waited);
  }
  assert.ok(delays.size > 5, `${delays.size} different delays`);
});

test("delays double up to a limit, with jitter", () => {
  const whole = [0, 1, 2, 3, 20].map((attempt) => backOff(attempt, DEFAULTS, () => 1));
  assert.deepEqual(whole, [250, 500, 1000, 2000, 30_000]);
  assert.equal(
    backOff(1, DEFAULTS, () => 0),
    250,
  );
});

test("a node that is away is tried less and less often, and a session that held begins anew", () => {
  goLive();
  mock.timers.tick(DEFAULTS.stableAfter + 1);
  socket().closes(1006);
  for (let attempt = 0; attempt < 12; attempt += 1) {
    mock.timers.tick(DEFAULTS.maxDelay);
    socket().closes(1006);
  }
  const before = sockets.length;
  mock.timers.tick(DEFAULTS.maxDelay / 2 - 1);
  assert.equal(sockets.length, before, "no try within half of the longest delay");
  mock.timers.tick(DEFAULTS.maxDelay);
  socket().opens();
  socket().answers({ code: 200 });
  mock.timers.tick(DEFAULTS.stableAfter + 1);
  socket().closes(1006);
  const after = sockets.length;
  mock.timers.tick(DEFAULTS.minDelay);
  assert.equal(sockets.length, after + 1);
  assert.deepEqual(
    statuses().filter((each) => each !== "gap"),
    ["created", "in-progress", "live", "disconnected", "live", "disconnected"],
  );
});

test("connect() while it waits tries at once", () => {
  goLive();
  socket().closes(1006);
  stub.connect();
  assert.equal(sockets.length, 2);
});

// --- messages -------------------------------------------------------------------------------------

test("what came in through the stub does not go out through it", () => {
  goLive();
  bus.send(request(1, { body: { via: STUB } }));
  assert.equal(messages().length, 0);
});

test("what comes in is marked, and what went out is not taken in again", () => {
  goLive();
  bus.send(request(1, { body: { via: "runtime://d/protostub/other" } }));
  const sent = messages()[0];
  assert.notEqual(sent.body.via, "runtime://d/protostub/other");
  const before = bus.got.length;
  socket().says(sent);
  assert.equal(bus.got.length, before);
  socket().says(change("theirs"));
  assert.deepEqual(bus.got.at(-1), { ...change("theirs"), body: { value: "theirs", via: STUB } });
});

test("what the runtime hands over is not changed", () => {
  goLive();
  const message = Object.freeze(request(1, { body: Object.freeze({ value: 1 }) }));
  bus.send(message);
  assert.equal(messages()[0].body.value, 1);
});

test("a frame that is no message is passed over", () => {
  goLive();
  const before = bus.got.length;
  for (const frame of ["nonsense", "null", "7"]) socket().says(frame);
  assert.equal(bus.got.length, before);
});

test("messages wait in order while the node is away", () => {
  goLive();
  bus.send(request(1));
  socket().closes(1006);
  for (const id of [2, 3, 4]) bus.send(request(id));
  mock.timers.tick(DEFAULTS.minDelay);
  socket().opens();
  assert.equal(messages().length, 0, "nothing before the session is open");
  socket().answers({ code: 200 });
  assert.deepEqual(
    messages().map((each) => each.id),
    [2, 3, 4],
  );
});

test("a full queue refuses requests, and says that events are lost", () => {
  load({ maxQueue: 400 });
  stub.connect();
  bus.send(request(1));
  bus.send(request(2, { body: { text: "x".repeat(400) } }));
  assert.equal(bus.got.at(-1).id, 2);
  assert.equal(bus.got.at(-1).body.code, 503);
  bus.send(change("y".repeat(400)));
  bus.send(change("y".repeat(400)));
  assert.deepEqual(statuses().filter((each) => each === "gap").length, 1);
  socket().opens();
  socket().answers({ code: 200, runtimeToken: "t1" });
  assert.match(bus.got.at(-1).body.desc, /^2 messages/);
  assert.deepEqual(
    messages().map((each) => each.id),
    [1],
  );
});

test("a message that the node would not take is answered 413", () => {
  load({ maxFrame: 500 });
  goLive();
  bus.send(request(1, { body: { text: "ü".repeat(250) } }));
  assert.equal(bus.got.at(-1).body.code, 413);
  assert.equal(messages().length, 0);
});

test("half of a surrogate pair is refused, because no node reads it; what looks like one passes", () => {
  load();
  goLive();
  for (const text of ["😀".slice(0, 1), "x\udfff", "\\\ud83d"]) {
    bus.send(request(1, { body: { text } }));
    assert.equal(bus.got.at(-1).body.code, 400);
  }
  bus.send(request(2, { body: { text: "😀 \\ud83d \\\\ud83d" } }));
  assert.deepEqual(
    messages().map((each) => each.id),
    [2],
  );
});

test("a socket that is full is given no more until it drains", () => {
  goLive();
  socket().bufferedAmount = DEFAULTS.maxBuffer;
  bus.send(request(1));
  bus.send(request(2));
  assert.equal(messages().length, 0);
  socket().bufferedAmount = 0;
  mock.timers.tick(20);
  assert.deepEqual(
    messages().map((each) => each.id),
    [1, 2],
  );
});

test("an answer of mn:/session that says nothing is a try that failed", () => {
  stub.connect();
  socket().opens();
  socket().answers(null);
  assert.deepEqual(statuses(), ["created", "in-progress", "disconnected"]);
});

test("a connection that breaks while messages are on their way out is a gap", () => {
  goLive();
  bus.send(request(1));
  socket().bufferedAmount = 100;
  socket().closes(1006);
  assert.deepEqual(statuses().slice(-2), ["disconnected", "gap"]);
});

test("the node's gap signal reaches the bus and the stub's status", () => {
  goLive();
  socket().says({
    id: 1,
    type: "update",
    from: "domain://msg-node.d",
    to: `${ME}/status`,
    body: { value: "gap" },
  });
  assert.deepEqual(
    bus.got.slice(-2).map((each) => each.to),
    [`${ME}/status`, `${STUB}/status`],
  );
  assert.equal(statuses().at(-1), "gap");
  assert.equal(stub.state, "live");
});

test("a listener that fails is reported, and does not stop the stub", () => {
  goLive();
  const tasks = [];
  const later = mock.method(globalThis, "queueMicrotask", (task) => tasks.push(task));
  bus.postMessage = () => {
    throw new Error("a listener's fault");
  };
  socket().closes(1006);
  later.mock.restore();
  assert.throws(tasks[0], /a listener's fault/);
  mock.timers.tick(DEFAULTS.minDelay);
  assert.equal(sockets.length, 2);
});
