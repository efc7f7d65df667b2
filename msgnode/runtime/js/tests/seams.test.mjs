/** What happens at once, late, twice or by somebody else: the seams between loader, stubs and bus. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { RequestRoutes } from "../src/messagebus.js";
import { inProcessChannel } from "../src/sandbox/in-process.js";
import { Sandboxes } from "../src/sandbox/sandboxes.js";
import { StubEntry, StubList, MAX_ENTRIES } from "../src/stub-list.js";
import { settled } from "./fake-clock.mjs";
import { R, STUB, newWorld, until } from "./world.mjs";

const A = "hyperty://d/a";
const FAR = "hyperty://f/x";

let all;
let runtime, bus, clock, catalogues, world;

beforeEach(() => {
  all = newWorld();
  ({ runtime, bus, clock, catalogues, world } = all);
});
afterEach(async () => {
  const closing = runtime.close();
  await settled();
  await clock.turn(10_000);
  await closing;
  assert.equal(clock.timers, 0, "a closed runtime leaves no timer");
});

const create = (to, n = 0) => ({ type: "create", from: A, to, body: { n } });
const stubOf = (domain) =>
  world.started.findLast(({ url }) => url.startsWith(`runtime://${domain}/`));
const started = (count) => until(() => world.started.length >= count, `${count} stubs`);

test("what is sent once the runtime has closed is refused, and loads nothing", async () => {
  await catalogues.add("f");
  await runtime.close();
  const answers = [];
  bus.postMessage(create(FAR), ({ body }) => answers.push(body.code));
  await settled();
  assert.deepEqual([answers, catalogues.asked], [[503], []]);
});

test("an answer counts only through the stub that asked, or through the home stub from who was asked", async () => {
  for (const domain of ["d", "f", "g"])
    await catalogues.add(domain, STUB, {}, `https://${domain}/.well-known/protocolstub/default`);
  bus.postMessage(create("hyperty://d/elsewhere"));
  bus.postMessage(create("hyperty://g/x"));
  const got = [];
  for (const n of [1, 2]) bus.postMessage(create(FAR, n), ({ body }) => got.push([n, body.value]));
  await started(3);
  await until(() => stubOf("f").sent.length === 2, "the requests");
  const [one, two] = stubOf("f").sent.map(({ id }) => id);
  const answer = (id, value, from = FAR) => ({
    id,
    type: "response",
    from,
    to: A,
    body: { code: 200, value },
  });
  stubOf("g").bring(answer(one, "a lie"));
  stubOf("d").bring(answer(one, "of another", "hyperty://f/other"));
  await settled();
  assert.deepEqual(got, []);
  stubOf("f").bring(answer(one, "true"));
  stubOf("d").bring(answer(two, "true, by way of home"));
  await until(() => got.length === 2, "the answers");
  assert.deepEqual(got, [
    [1, "true"],
    [2, "true, by way of home"],
  ]);
});

test("a foreign stub brings no answer to what a hyperty has asked somebody else, whose ids it can foresee", async () => {
  for (const domain of ["d", "f", "g"])
    await catalogues.add(domain, STUB, {}, `https://${domain}/.well-known/protocolstub/default`);
  const { bus: own } = runtime.addHyperty(A);
  bus.addListener("hyperty://d/silent", () => {});
  const got = [];
  const to = [FAR, "domain://registry.d", "hyperty://g/x", "hyperty://d/silent"];
  const ids = to.map((each) =>
    own.postMessage(create(each), ({ body }) => got.push([each, body.value])),
  );
  await started(3);
  await until(() => ["d", "f", "g"].every((domain) => stubOf(domain).sent.length), "the requests");
  const answer = (n, value, from) => ({
    id: ids[n],
    type: "response",
    from,
    to: A,
    body: { code: 200, value },
  });
  to.slice(1).forEach((each, n) => stubOf("f").bring(answer(n + 1, "a lie", n === 2 ? FAR : each)));
  await settled();
  assert.deepEqual(got, []);
  assert.deepEqual(
    [runtime.counters["stub.forged"], runtime.counters["answers.unexpected"]],
    [2, 1],
  );
  stubOf("f").bring(answer(0, "true", FAR));
  stubOf("d").bring(answer(1, "true", to[1]));
  stubOf("d").bring(answer(2, "true, by way of home", to[2]));
  bus.postMessage(answer(3, "true", to[3]));
  await until(() => got.length === 4, "the answers");
  assert.deepEqual(
    got.map(([, value]) => value),
    ["true", "true", "true, by way of home", "true"],
  );
});

test("what is asked is remembered for the newest, and forgotten after its answer", () => {
  const routes = new RequestRoutes(100);
  for (let id = 0; id < 1000; id += 1) routes.keep({ from: A, id }, `stub ${id}`);
  const known = Array.from({ length: 1000 }, (_, id) => routes.of({ to: A, id })).filter(Boolean);
  assert.ok(known.length >= 50 && known.length <= 100, String(known.length));
  assert.equal(known.at(-1), "stub 999");
  routes.keep({ from: A, id: 999 }, "another");
  assert.equal(routes.of({ to: A, id: 999 }), "another");
  routes.forget({ to: A, id: 999 });
  assert.equal(routes.of({ to: A, id: 999 }), undefined);
});

test("a stub that says created twice gets what has waited once", async () => {
  await catalogues.add(
    "f",
    STUB.replace('stub.say("created");', 'stub.say("created"); stub.say("created");'),
  );
  for (let n = 0; n < 3; n += 1) bus.postMessage(create(FAR, n));
  await started(1);
  await until(() => stubOf("f").sent.length >= 3, "the messages");
  stubOf("f").say("created");
  await settled();
  assert.deepEqual(
    stubOf("f").sent.map(({ body }) => body.n),
    [0, 1, 2],
  );
});

test("what a stub says after it was unloaded reaches nobody", async () => {
  await catalogues.add("f");
  bus.postMessage(create(FAR));
  await started(1);
  await until(() => stubOf("f").sent.length, "the message");
  const stub = stubOf("f");
  const heard = [];
  bus.addListener(A, (message) => heard.push(message));
  stub.say("live");
  await clock.turn(40_000);
  await clock.turn(100_000);
  await until(() => !runtime.stubs.get("f"), "the end of the stub");
  stub.say("live");
  stub.bring({ id: 1, type: "create", from: FAR, to: A, body: {} });
  await settled();
  assert.deepEqual(
    heard.filter(({ type }) => type !== "response"),
    [],
  );
  assert.equal(runtime.stubs.get("f"), undefined);
});

test("a message that comes while the stub is unloaded is answered by the next one", async () => {
  await catalogues.add("f");
  bus.postMessage(create(FAR, 1));
  await started(1);
  const first = stubOf("f");
  await until(() => first.sent.length, "the message");
  first.bring({ id: first.sent[0].id, type: "response", from: FAR, to: A, body: { code: 200 } });
  await clock.turn(100_000);
  bus.postMessage(create(FAR, 2));
  await started(2);
  await until(() => stubOf("f").sent.length, "the message");
  assert.deepEqual(
    stubOf("f").sent.map(({ body }) => body.n),
    [2],
  );
});

test("a hundred domains are looked up at a time; the next is 503, and loaded when there is room", async () => {
  const releases = [];
  const codes = [];
  for (let n = 0; n < 101; n += 1) {
    catalogues.answers.set(
      `https://h${n}/.well-known/protocolstub/default`,
      () => new Promise((resolve) => releases.push(() => resolve(undefined))),
    );
    bus.postMessage(create(`hyperty://h${n}/x`), ({ body }) => codes.push(body.code));
  }
  await until(() => codes.length === 1, "the refusal");
  assert.deepEqual(codes, [503]);
  assert.equal(runtime.stubs.get("h100"), undefined);
  await until(() => releases.length === 100, "the requests");
  releases.forEach((release) => release());
  await until(() => codes.length === 101, "the answers");
  await catalogues.add("f");
  bus.postMessage(create(FAR));
  await started(1);
});

test("the stub that failed longest ago makes room in a full list; others stay", () => {
  const list = new StubList();
  for (let n = 0; n < MAX_ENTRIES; n += 1)
    list.add(new StubEntry({ kind: "domain", key: `h${n}`, domain: `h${n}` }, 0));
  assert.equal(list.makeRoom(), false);
  for (const key of ["h7", "h9"]) list.get(key).status = "deployment-failed";
  assert.equal(list.makeRoom(), true);
  assert.equal(list.get("h7"), undefined);
  assert.ok(list.get("h9"));
});

test("a sandbox that opens after its load has timed out is ended", async () => {
  await runtime.close();
  let open;
  const killed = [];
  const late = (load) => {
    const channel = inProcessChannel(load);
    const { kill } = channel;
    channel.kill = () => (killed.push(1), kill());
    return channel;
  };
  all = newWorld({
    openChannel: (load) => new Promise((resolve) => (open = () => resolve(late(load)))),
  });
  ({ runtime, bus, clock, catalogues, world } = all);
  await catalogues.add("f");
  const codes = [];
  bus.postMessage(create(FAR), ({ body }) => codes.push(body.code));
  await until(() => open, "the wish for a sandbox");
  await clock.turn(20_001);
  await until(() => codes.length, "the answer");
  assert.deepEqual(codes, [504]);
  open();
  await until(() => killed.length, "its end");
  assert.equal(world.started.length, 0);
});

test("what opens at the same time counts: there are 16 sandboxes, and one for each domain", async () => {
  const opened = [];
  const openChannel = async ({ domain }) => {
    await null;
    opened.push(domain);
    return inProcessChannel(() => ({}));
  };
  const sandboxes = new Sandboxes({ count() {} }, { isOwn: () => false, openChannel, clock });
  const asked = Array.from({ length: 20 }, (_, n) =>
    sandboxes.open({ domain: `h${n >> 1}` }, { constraints: {}, configuration: {} }),
  );
  asked.push(
    ...Array.from({ length: 10 }, (_, n) =>
      sandboxes.open({ domain: `more${n}` }, { constraints: {}, configuration: {} }),
    ),
  );
  const results = await Promise.allSettled(asked);
  assert.equal(new Set(opened).size, opened.length);
  assert.equal(opened.length, 16);
  assert.equal(results.filter(({ reason }) => reason?.code === 503).length, 4);
  sandboxes.close();
});

// --- stubs that follow one another -----------------------------------------------------------------

const SM = "domain://msg-node.f/sm";
const said = () => {
  const told = [];
  bus.addListener(`${R}/status`, ({ body }) => told.push(body));
  return told;
};
const subscribe = (from, resources, more = {}) => ({
  type: "subscribe",
  from,
  to: SM,
  body: { resources, ...more },
});

/** Have a stub grant whatever is subscribed. */
function granting() {
  world.sent = (stub, { id, type, from, to }) =>
    type !== "response" &&
    stub.bring({ id, type: "response", from: to, to: from, body: { code: 200 } });
}

/** Subscriptions that a stub was asked for: each address, with who asked and for whom. */
const asked = (stub) =>
  stub.sent
    .filter(({ type }) => type === "subscribe")
    .flatMap(({ from, body: { resources, source } }) =>
      resources.map((each) => [each, from, source]),
    );

test("a new version of a stub abroad connects as nobody, and subscribes what the old one had", async () => {
  await catalogues.add("d");
  await catalogues.add("f");
  await runtime.logIn({ accessToken: "secret of d" });
  granting();
  const observed = Array.from({ length: 101 }, (_, n) => `comm://f/${n}/changes`);
  await bus.request(subscribe(A, observed));
  await bus.request(subscribe(`${R}/sm`, ["comm://f/o"], { source: A }));
  await bus.request({
    type: "unsubscribe",
    from: A,
    to: SM,
    body: { resources: ["comm://f/7/changes"] },
  });
  const old = stubOf("f");
  old.say("live");
  await settled();
  const told = said();
  await catalogues.add("f", STUB, { version: "2.0" });
  await runtime.renew("f");
  const next = stubOf("f");
  assert.notEqual(next, old);
  await until(() => asked(next).length === 101, "the subscriptions");
  assert.ok(
    next.calls.length && !JSON.stringify([next.calls, next.sent]).includes("secret"),
    JSON.stringify(next.calls),
  );
  const expected = observed
    .filter((each) => each !== "comm://f/7/changes")
    .map((each) => [each, A, undefined]);
  assert.deepEqual(asked(next), [...expected, ["comm://f/o", `${R}/sm`, A]]);
  assert.ok(next.sent.every(({ body }) => !(body?.resources?.length > 100)));
  assert.deepEqual(
    told.filter(({ value }) => value === "gap").map(({ resource }) => resource),
    [next.url],
  );
});

test("what is allocated by any name of the component is held until it is given back", () => {
  for (const kind of ["", "hyperty-", "object-"]) {
    const entry = new StubEntry({ kind: "domain", key: "d", domain: "d" }, 0);
    const node = `domain://msg-node.d/${kind}address-allocation`;
    entry.sent({ id: 1, type: "create", from: A, to: node, body: {} }, 0);
    entry.received(
      {
        id: 1,
        type: "response",
        from: node,
        to: A,
        body: { code: 200, value: { allocated: ["hyperty://d/1", "hyperty://d/2"] } },
      },
      0,
    );
    entry.sent(
      { id: 2, type: "delete", from: A, to: node, body: { resource: "hyperty://d/1" } },
      0,
    );
    assert.deepEqual(
      [...entry.held],
      [["hyperty://d/2", { from: A, to: "domain://msg-node.d/sm" }]],
    );
  }
});

test("a new home stub connects as the user before the old one has gone", async () => {
  await catalogues.add(
    "d",
    STUB.replace(
      'stub.calls.push(["disconnect"]);',
      'stub.calls.push(["disconnect"]); return new Promise((resolve) => (stub.gone = resolve));',
    ),
  );
  await runtime.logIn({ accessToken: "mine" });
  const old = stubOf("d");
  await catalogues.add("d", STUB, { version: "2.0" });
  const renewed = runtime.renew("d");
  await until(() => old.gone, "the good-bye of the old one");
  await settled();
  assert.deepEqual(stubOf("d").calls, [["connect", { assertion: "mine" }]]);
  old.gone();
  await renewed;
});

test("a new version that ends before it can take over does not", async () => {
  await runtime.close();
  all = newWorld({ platform: "browser" });
  ({ runtime, bus, clock, catalogues, world } = all);
  await catalogues.add("f");
  bus.postMessage(create(FAR, 1)); // is not answered, so that the new one waits
  await started(1);
  await until(() => stubOf("f").sent.length, "the request");
  stubOf("f").say("live");
  await catalogues.add("f", STUB, { version: "2.0", constraints: { windowSandbox: true } }); // in a sandbox of its own
  const renewed = runtime.renew("f");
  await started(2);
  await settled();
  all.channels.at(-1).onClose("It ended.");
  for (let n = 0; n < 200; n += 1) await clock.turn(200);
  await renewed;
  bus.postMessage(create(FAR, 2));
  await until(
    () => world.started[0].sent.some(({ body }) => body?.n === 2),
    "the message, at the old one",
  );
});

test("the home stub whose sandbox died connects again by itself, as who has logged in, and subscribes again", async () => {
  await runtime.close();
  all = newWorld({ sandbox: "all" });
  ({ runtime, bus, clock, catalogues, world } = all);
  await catalogues.add("d");
  const entry = await runtime.logIn({ accessToken: "mine" });
  granting();
  await bus.request({
    ...subscribe(A, ["hyperty://d/a"], { source: A }),
    to: "domain://msg-node.d/sm",
  });
  const told = said();
  all.channels.at(-1).onClose("It ended.");
  await clock.turn(1000);
  await started(2);
  await until(() => asked(stubOf("d")).length, "the subscription");
  assert.deepEqual(stubOf("d").calls, [["connect", { assertion: "mine" }]]);
  assert.deepEqual(asked(stubOf("d")), [["hyperty://d/a", A, A]]);
  assert.equal(entry.status, "live");
  assert.ok(told.some(({ value }) => value === "gap"));
});

test("who does not wait until a dead stub is started again has it loaded once", async () => {
  await runtime.close();
  all = newWorld({ sandbox: "all" });
  ({ runtime, bus, clock, catalogues, world } = all);
  await catalogues.add("d");
  await runtime.logIn();
  all.channels.at(-1).onClose("It ended.");
  const entry = await runtime.connect("d");
  await clock.turn(2000);
  await settled();
  assert.deepEqual([entry.status, world.started.length], ["live", 2]);
  assert.equal(stubOf("d").bus.listenersOf("*").length, 1);
  bus.postMessage(create("hyperty://d/elsewhere", 3));
  await until(() => stubOf("d").sent.some(({ body }) => body?.n === 3), "the message");
});

test("a hyperty's URL is taken once; who asks for it again changes nothing", async () => {
  const first = runtime.addHyperty(A);
  const heard = [];
  first.bus.addListener(A, (message) => heard.push(message));
  assert.throws(
    () => runtime.addHyperty(A),
    ({ code }) => code === 500,
  );
  await assert.rejects(runtime.deployHyperty(STUB, {}, A), ({ code }) => code === 500);
  const both = await Promise.allSettled(
    [1, 2].map(() => runtime.deployHyperty(STUB, {}, "hyperty://d/b")),
  );
  assert.deepEqual(
    both.map(({ reason }) => reason?.code),
    [undefined, 500],
  );
  bus.postMessage({ type: "update", from: FAR, to: A, body: {} });
  bus.postMessage({ type: "update", from: FAR, to: "hyperty://d/b", body: { n: 1 } });
  await until(() => world.started[0].sent.length, "the message for the one that was deployed");
  assert.equal(heard.length, 1);
  first.remove();
  runtime.addHyperty(A);
});

// --- answers that would never come -----------------------------------------------------------------

test("a handler whose result is no message refuses that one with 500; what waits behind it goes on", async () => {
  await catalogues.add("f");
  let release;
  const handled = bus.pipelineOut.use((message) =>
    message.body.n === 1
      ? new Promise((resolve) => (release = () => resolve({ type: "create" })))
      : undefined,
  );
  const codes = [];
  bus.postMessage(create(FAR, 1), ({ body }) => codes.push(body.code));
  await until(() => release, "the handler");
  bus.postMessage(create(FAR, 2));
  await settled();
  release();
  await started(1);
  await until(() => stubOf("f").sent.length, "the message behind");
  handled.remove();
  assert.deepEqual(
    stubOf("f").sent.map(({ body }) => body.n),
    [2],
  );
  assert.deepEqual(codes, [500]);
});

test("a message is as large as the buffers in it, whatever JSON would make of them", async () => {
  const heard = [];
  bus.addListener("hyperty://d/x", ({ body }) => heard.push(body.value.content.byteLength));
  const codes = [];
  for (const content of [
    new ArrayBuffer(2 ** 20 + 1),
    new Uint8Array(2 ** 20),
    new Uint8Array(500_000),
    new ArrayBuffer(1_000_000),
  ]) {
    bus.postMessage(
      { type: "create", from: A, to: "hyperty://d/x", body: { value: { content } } },
      ({ body }) => codes.push(body.code),
    );
  }
  await settled();
  assert.deepEqual(
    [codes, heard],
    [
      [413, 413],
      [500_000, 1_000_000],
    ],
  );
  bus.removeAllListenersOf(A);
});

test("one timer serves all who wait, however often they ask again", async () => {
  const { bus: mini } = runtime.addHyperty(A);
  bus.addListener("hyperty://d/silent", () => {});
  const timers = clock.timers;
  for (let n = 0; n < 3; n += 1) {
    mini.postMessageWithRetries({ type: "create", from: A, to: "hyperty://d/silent" }, 3, () => {});
    await clock.turn(100);
  }
  for (let n = 0; n < 3; n += 1) {
    await clock.turn(15_000);
    assert.equal(clock.timers - timers, 1);
  }
});

test("a log-in that waits for its node ends with the runtime", async () => {
  await catalogues.add("d", STUB.replace('stub.say("live");', ""));
  const logIn = assert.rejects(runtime.logIn(), ({ code }) => code === 503);
  await until(() => runtime.stubs.get("d")?.status === "in-progress", "its try");
  const closing = runtime.close();
  await settled();
  await clock.turn(5000);
  await Promise.all([closing, logIn]);
});
