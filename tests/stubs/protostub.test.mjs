/** Case 54, step by step: the JavaScript stub on a scripted socket and a clock that we turn. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { afterEach, beforeEach, mock, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { MiniBus } from "../../msgnode/runtime/js/src/minibus.js";
import Stub, {
  DEFAULTS,
  activate,
  backOff,
  spread,
} from "../../msgnode/runtime/js/src/protostub.js";

const CASES = new URL("protostub-cases.jsonl", import.meta.url);
const STUB = "runtime://d/protostub/1";
const ME = "runtime://d/me";
const SM = "domain://msg-node.d/sm";
const SESSION = "mn:/session";

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
    this.onmessage?.({ data: typeof message === "string" ? message : JSON.stringify(message) });
  }

  answers(body) {
    const asked = this.sent.findLast((frame) => frame.to === SESSION);
    this.says({ id: asked.id, type: "response", from: SESSION, to: asked.from, body });
  }

  closes(code, reason = "") {
    this.readyState = 3;
    this.onclose({ code, reason });
  }
}

const socket = () => sockets.at(-1);
const ofSession = () => socket().sent.filter((frame) => frame.to === SESSION);
const messages = () => socket().sent.filter((frame) => frame.to !== SESSION);
const statuses = () =>
  bus.got.filter((each) => each.to === `${STUB}/status`).map((each) => each.body.value);
const request = (id, body = {}) => ({ id, type: "read", from: `${ME}/x`, to: "comm://d/o", body });
const addresses = (first, end) =>
  Array.from({ length: end - first }, (_, n) => `comm://d/${first + n}/changes`);

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

// --- the cases of both languages ------------------------------------------------------------------

/** Turn the clock until something is so. */
function until(isSo) {
  for (let n = 0; n < 6_000 && !isSo(); n += 1) mock.timers.tick(10);
}

/** What the steps of a case do; a pair in a body is a text and how often it is repeated. */
async function play({ steps, config }) {
  let [opened, asked, got, promise] = [0, 0, 0, null]; // what has been looked at of this socket
  const change = (value) => ({ from: "comm://d/o", to: "comm://d/o/changes", body: { value } });
  const claim = (type) => (id, first, end) => {
    const body = { resources: addresses(first, end), source: ME };
    bus.send({ id, type, from: `${ME}/sm`, to: SM, body });
  };
  const acts = {
    send: (id, { text, ...body } = {}) =>
      bus.send(
        request(id, { ...body, text: Array.isArray(text) ? text[0].repeat(text[1]) : text }),
      ),
    send_body: (id, body) => bus.send({ ...request(id), body }),
    change: (size) => bus.send({ id: 1, type: "update", ...change("y".repeat(size)) }),
    subscribe: claim("subscribe"),
    unsubscribe: claim("unsubscribe"),
    connect: (identity) => void (promise = stub.connect(identity)),
    disconnect: () => void (promise = stub.disconnect()),
    is: async (state) => assert.equal((await promise) ?? null, state),
    opens() {
      until(() => sockets.length > opened);
      assert.equal(sockets.length, opened + 1);
      [opened, asked, got] = [sockets.length, 0, 0];
      socket().opens();
    },
    asked(expected) {
      const { id, ...frame } = ofSession()[asked++];
      assert.deepEqual({ id, ...frame }, { id, ...expected, to: SESSION });
    },
    answers(body) {
      asked = ofSession().length;
      socket().answers(body);
    },
    live(runtimeToken) {
      acts.opens();
      acts.answers({ code: 200, runtimeToken });
    },
    gets(...ids) {
      const found = messages().slice(got);
      assert.deepEqual(
        found.map(({ id }) => id),
        ids,
      );
      got += ids.length;
    },
    grants(code, first, end) {
      const { id, from, to, body } = messages()[got++];
      const { resources, source } = body;
      assert.deepEqual([from, to, source, resources], [`${ME}/sm`, SM, ME, addresses(first, end)]);
      socket().says({ id, type: "response", from: to, to: from, body: { code } });
    },
    says: (message) => socket().says(message),
    echoes: () => socket().says(messages()[got - 1]),
    breaks: () => socket().closes(1006),
    closes: (code, reason) => socket().closes(code, reason),
    statuses(expected) {
      until(() => statuses().length >= expected.length);
      assert.deepEqual(statuses(), expected);
    },
    heard(...expected) {
      const last = () =>
        bus.got
          .slice(-expected.length)
          .map(({ body, ...head }, n) =>
            Object.fromEntries(
              Object.keys(expected[n] ?? {}).map((key) => [key, head[key] ?? body[key]]),
            ),
          );
      until(() => isDeepStrictEqual(last(), expected));
      assert.deepEqual(last(), expected);
    },
    state: (state) => assert.equal(stub.state, state),
    rests() {
      mock.timers.tick(3_600_000);
      assert.equal(sockets.length, opened);
    },
  };
  load(config);
  for (const [act, ...words] of steps) await acts[act](...words);
}

const PLAYS = {
  stub: play,
  defaults: ({ is }) => assert.deepEqual({ ...DEFAULTS, ...is }, DEFAULTS),
  spread({ rows }) {
    for (const [reason, within] of rows) assert.equal(spread(reason), within, reason);
  },
  backOff({ rows }) {
    for (const [attempt, jitter, delay] of rows)
      assert.equal(
        backOff(attempt, DEFAULTS, () => jitter),
        delay,
      );
  },
};

for (const line of (await readFile(CASES, "utf8")).trim().split("\n")) {
  const { each = [null] } = JSON.parse(line);
  for (const value of each) {
    const { of, name, ...given } = JSON.parse(line.replaceAll('"$"', JSON.stringify(value)));
    test(`${name} ${JSON.stringify(value ?? "")}`, () => PLAYS[of](given));
  }
}

// --- what is JavaScript's alone -------------------------------------------------------------------

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

test("an error that no close follows, as of Node.js 20 where nobody listens, is a lost connection", () => {
  stub.connect();
  socket().onerror({});
  mock.timers.tick(100);
  assert.equal(statuses().at(-1), "disconnected");
  mock.timers.tick(DEFAULTS.minDelay);
  assert.equal(sockets.length, 2);
});

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

test("what the runtime hands over is not changed", () => {
  goLive();
  const message = Object.freeze(request(1, Object.freeze({ value: 1 })));
  bus.send(message);
  assert.equal(messages()[0].body.value, 1);
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

test("a connection that breaks while messages are on their way out is a gap", () => {
  goLive();
  bus.send(request(1));
  socket().bufferedAmount = 100;
  socket().closes(1006);
  assert.deepEqual(statuses().slice(-2), ["disconnected", "gap"]);
});

test("a listener that fails is reported, and does not stop the stub", () => {
  goLive();
  const said = mock.method(console, "error", () => {});
  bus.postMessage = () => {
    throw new Error("a listener's fault");
  };
  socket().closes(1006);
  said.mock.restore();
  assert.match(said.mock.calls[0].arguments[1].message, /a listener's fault/);
  mock.timers.tick(DEFAULTS.minDelay);
  assert.equal(sockets.length, 2);
});

for (const [what, frame] of [
  ["without a sender", { type: "update", to: ME, body: {} }],
  ["of too many layers", { type: "update", from: "comm://d/o", to: ME, body: nested(300) }],
]) {
  test(`a frame ${what} of a node ends neither the stub nor the process`, async () => {
    const real = new MiniBus(() => {});
    goLive();
    bus.postMessage = (message) => real.postMessage(message);
    const said = mock.method(console, "error", () => {});
    socket().says(frame);
    await Promise.resolve(); // what is thrown in a turn of its own ends the process
    said.mock.restore();
    assert.equal(said.mock.callCount(), 1);
    assert.equal(stub.state, "live");
  });
}

function nested(layers) {
  return layers ? { a: nested(layers - 1) } : {};
}
