/** Resolving and loading: cases R21 to R39, R46, R49, R50, R53, R54 of the runtime. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { AnswerError } from "../src/common.js";
import { settled } from "./fake-clock.mjs";
import { R, STUB, descriptorOf, endWorld, newWorld, until } from "./world.mjs";

const F = "https://f/.well-known/protocolstub/default";

let all;
let runtime, bus, clock, catalogues, world;

function begin(options) {
  all = newWorld(options);
  ({ runtime, bus, clock, catalogues, world } = all);
}

beforeEach(() => begin());
afterEach(() => endWorld({ runtime, clock }));

const create = (to, n = 0, from = "hyperty://d/a") => ({ type: "create", from, to, body: { n } });
/** The code and text of the answer to a request. */
const answer = (message) =>
  bus.request(message).then(
    (body) => body,
    (error) => {
      if (!(error instanceof AnswerError)) throw error;
      return error.body;
    },
  );
const sentBy = (stub) => stub.sent.map(({ to, body }) => [to, body?.n]);
const loaded = (count = 1) => until(() => world.started.length >= count, `${count} stubs`);

test("R21 the first message loads the stub: one GET, one start, then it goes out", async () => {
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x", 1));
  await loaded();
  await until(() => world.started[0].sent.length, "the message");
  assert.deepEqual(catalogues.asked, [`GET ${F}`]);
  assert.equal(world.started.length, 1);
  const [stub] = world.started;
  assert.deepEqual(sentBy(stub), [["hyperty://f/x", 1]]);
  assert.match(stub.url, /^runtime:\/\/f\/protostub\/[0-9a-f]{32}$/);
  assert.equal(stub.config.runtimeURL, R);
});

test("R22 ten messages to three addresses while it loads: one load, all in order", async () => {
  await catalogues.add("f");
  for (let n = 0; n < 10; n += 1) bus.postMessage(create(`hyperty://f/${n % 3}`, n));
  await loaded();
  await until(() => world.started[0].sent.length === 10, "ten messages");
  assert.equal(world.started.length, 1);
  assert.deepEqual(
    world.started[0].sent.map(({ body }) => body.n),
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
  );
});

test("R22 messages of several domains do not wait for each other", async () => {
  let release;
  await catalogues.add("g");
  const { json } = { json: await descriptorOf("f") };
  catalogues.answers.set(F, () => new Promise((resolve) => (release = () => resolve({ json }))));
  bus.postMessage(create("hyperty://f/x", 1));
  bus.postMessage(create("hyperty://g/x", 2));
  await loaded();
  await until(() => world.started[0].sent.length, "the second");
  assert.match(world.started[0].url, /^runtime:\/\/g\//);
  release();
  await loaded(2);
});

test("B9 at most a thousand messages wait for a stub", async () => {
  catalogues.answers.set(F, () => new Promise(() => {}));
  for (let n = 0; n < 1000; n += 1) bus.postMessage(create("hyperty://f/x", n));
  const { code } = await answer(create("hyperty://f/x", 1000));
  assert.equal(code, 503);
});

test("R23 a message while the stub is in-progress is handed to it at once", async () => {
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x", 1));
  await loaded();
  world.started[0].say("in-progress");
  await settled();
  bus.postMessage(create("hyperty://f/x", 2));
  await settled();
  assert.deepEqual(sentBy(world.started[0]).at(-1), ["hyperty://f/x", 2]);
});

test("R24 a failed stub is 503 with its words; after connect() and live the next passes", async () => {
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x", 1));
  await loaded();
  const [stub] = world.started;
  stub.say("failed", "The node refuses this runtime.");
  await settled();
  const { code, desc } = await answer(create("hyperty://f/x", 2));
  assert.deepEqual([code, desc], [503, "The node refuses this runtime."]);
  await clock.turn(5_000);
  bus.postMessage(create("hyperty://f/x", 3));
  await settled();
  await settled();
  assert.deepEqual(stub.calls, [["connect", undefined]]);
  assert.equal(runtime.stubs.get("f").status, "live");
  assert.deepEqual(sentBy(stub).at(-1), ["hyperty://f/x", 3]);
});

test("R25 without an entry of its own the home catalogue's entry for the domain is loaded", async () => {
  await catalogues.add("f", STUB, {}, "https://d/.well-known/protocolstub/f");
  bus.postMessage(create("hyperty://f/x", 1));
  await loaded();
  assert.deepEqual(catalogues.asked, [
    `GET ${F}`,
    `GET ${F}.ps.json`,
    "GET https://d/.well-known/protocolstub/f",
  ]);
});

test("R26 no entry anywhere is 404; nobody is asked again before the time has come", async () => {
  const first = await answer(create("hyperty://f/x"));
  assert.equal(first.code, 404);
  assert.match(first.desc, /\bf\b/);
  const asked = catalogues.asked.length;
  assert.equal((await answer(create("hyperty://f/x"))).code, 404);
  assert.equal(catalogues.asked.length, asked);
  await clock.turn(5_000);
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x", 5));
  await loaded();
  await until(() => world.started[0].sent.length, "the message");
});

test("R26 loads that fail are tried again after 5 s, then 10, doubling to 5 min", async () => {
  const waits = [];
  for (let round = 0; round < 9; round += 1) {
    await answer(create("hyperty://f/x"));
    const entry = runtime.stubs.get("f");
    waits.push(entry.retryAt - clock.now());
    await clock.turn(entry.retryAt - clock.now());
  }
  assert.deepEqual(
    waits,
    [5, 10, 20, 40, 80, 160, 300, 300, 300].map((seconds) => seconds * 1000),
  );
});

test("R27 a catalogue that hangs is 504 within 20 s", async () => {
  const hang = (_, signal) =>
    new Promise((resolve, reject) =>
      signal.addEventListener("abort", () => reject(new Error("aborted"))),
    );
  for (const url of [F, `${F}.ps.json`, "https://d/.well-known/protocolstub/f"])
    catalogues.answers.set(url, hang);
  const answered = answer(create("hyperty://f/x"));
  await settled();
  await clock.turn(20_000);
  assert.equal((await answered).code, 504);
  assert.equal(runtime.stubs.get("f").status, "deployment-failed");
});

test("R28 a source that differs from its digest never runs", async () => {
  const source = `globalThis.world.ran.push("evil"); ${STUB}`;
  const json = await catalogues.add("f", STUB);
  json.sourcePackage.sourceCode = source;
  const { code, desc } = await answer(create("hyperty://f/x"));
  assert.equal(code, 502);
  assert.match(desc, /sourcePackage\.integrity/);
  assert.deepEqual([world.ran, world.started], [[], []]);
});

test("R28 a digest that the operator lists for a domain must fit as well", async () => {
  await runtime.close();
  begin({ digests: { f: "sha256-AAAA" } });
  await catalogues.add("f");
  const { code, desc } = await answer(create("hyperty://f/x"));
  assert.equal(code, 502);
  assert.match(desc, /listed for the domain/);
  assert.deepEqual(world.started, []);
});

test("R28 where the domain's keys are listed, the source must be signed by one of them", async () => {
  const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
  const [mine, other] = await Promise.all(
    [0, 1].map(() => crypto.subtle.generateKey(algorithm, true, ["sign", "verify"])),
  );
  const jwk = await crypto.subtle.exportKey("jwk", mine.publicKey);
  const sign = async ({ privateKey }) =>
    btoa(
      String.fromCharCode(
        ...new Uint8Array(
          await crypto.subtle.sign(algorithm, privateKey, new TextEncoder().encode(STUB)),
        ),
      ),
    );
  for (const [signature, expected] of [
    ["", 502],
    [await sign(other), 502],
    [await sign(mine), 0],
  ]) {
    await runtime.close();
    begin({ signers: { f: [jwk] } });
    const json = await catalogues.add("f");
    json.sourcePackage.signature = signature;
    if (expected) {
      const { code, desc } = await answer(create("hyperty://f/x"));
      assert.equal(code, expected);
      assert.match(desc, /sourcePackage\.signature/);
      assert.equal(world.started.length, 0);
    } else {
      bus.postMessage(create("hyperty://f/x"));
      await loaded();
    }
  }
});

for (const [what, changes, field] of [
  [
    "another host",
    { sourcePackageURL: "https://evil.example/stub.js", sourcePackage: {} },
    "sourcePackageURL",
  ],
  ["plain HTTP", { sourcePackageURL: "http://f/stub.js", sourcePackage: {} }, "sourcePackageURL"],
]) {
  test(`R29 a source at ${what} is 502`, async () => {
    await catalogues.add("f", STUB, changes);
    const { code, desc } = await answer(create("hyperty://f/x"));
    assert.equal(code, 502);
    assert.match(desc, new RegExp(field));
    assert.equal(catalogues.asked.length, 1);
  });
}

test("R29 redirects are not followed, plain HTTP is not asked", async () => {
  catalogues.answers.set(F, { status: 302 });
  assert.match((await answer(create("hyperty://f/x"))).desc, /redirect/);
  await runtime.close();
  begin({ catalogues: { f: "http://f.example" } });
  const { code, desc } = await answer(create("hyperty://f/x"));
  assert.equal(code, 502);
  assert.match(desc, /not https/);
  assert.deepEqual(
    catalogues.asked.filter((each) => each.includes("http://")),
    [],
  );
});

test("R29 a source on the descriptor's own host is fetched", async () => {
  const { integrity } = (await descriptorOf("f")).sourcePackage;
  await catalogues.add("f", STUB, {
    sourcePackageURL: "https://f/files/stub.js",
    sourcePackage: { integrity },
  });
  catalogues.answers.set("https://f/files/stub.js", { text: STUB });
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
});

test("R30 a configuration as JSON text is read as an object; the runtime's own URL wins", async () => {
  await catalogues.add("f", STUB, {
    configuration: JSON.stringify({ url: "wss://f/ws", runtimeURL: "runtime://evil/1", x: 1 }),
  });
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  const { url, runtimeURL, x } = world.started[0].config;
  assert.deepEqual([url, runtimeURL, x], ["wss://f/ws", R, 1]);
});

test("R31 a configuration.url on another host is 502, unless that host is listed", async () => {
  const changes = { configuration: { url: "wss://hosting.example/ws" } };
  await catalogues.add("f", STUB, changes);
  const { code, desc } = await answer(create("hyperty://f/x"));
  assert.equal(code, 502);
  assert.match(desc, /configuration\.url/);
  await runtime.close();
  begin({ hosts: { f: ["hosting.example"] } });
  await catalogues.add("f", STUB, changes);
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
});

test("R32 constraints that are not met here are 501", async () => {
  for (const constraints of [
    { windowSandbox: true },
    { python: true },
    { node: true, webrtc: true },
  ]) {
    await runtime.close();
    begin();
    await catalogues.add("f", STUB, { constraints });
    const { code, desc } = await answer(create("hyperty://f/x"));
    assert.equal(code, 501);
    assert.match(desc, /constraints\./);
  }
});

test("R32 the catalogue is asked for a stub that suits", async () => {
  const other = await descriptorOf("f");
  const python = { ...other, language: "PYTHON", constraints: { python: true } };
  catalogues.answers.set(F, (method) => ({ json: method === "POST" ? other : python }));
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  assert.deepEqual(catalogues.asked, [`GET ${F}`, `POST ${F}`]);
});

const NOTED = `globalThis.world.started.push({ url, sent: [] });
  bus.postMessage({ type: "update", from: url, to: url + "/status", body: { value: "created" } });`;
for (const [style, source] of [
  ["activate", `export function activate(url, bus, config) { ${NOTED} return { instance: {} }; }`],
  [
    "the default export's activate",
    `export default { activate(url, bus, config) { ${NOTED} return { instance: {} }; } };`,
  ],
  [
    "a class with _start",
    `export default class { _start(url, bus, config, factory) { ${NOTED} } }`,
  ],
]) {
  test(`R33 a stub that is started by ${style} reaches created`, async () => {
    await catalogues.add("f", source);
    bus.postMessage(create("hyperty://f/x"));
    await loaded();
    await until(() => runtime.stubs.get("f").status === "created", "created");
  });
}

test("R33 a stub that says nothing of itself has the messages that waited, and its answers count", async () => {
  const silent = `export default class { _start(url, bus) {
    bus.addListener("*", ({ id, from, to }) =>
      bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200 } }));
  } }`;
  await catalogues.add("f", silent);
  const codes = await Promise.all([1, 2].map((n) => answer(create("hyperty://f/x", n))));
  assert.deepEqual(
    codes.map(({ code }) => code),
    [200, 200],
  );
  assert.equal(runtime.stubs.get("f").status, "deployed");
});

test("the home stub gets the class `WebSocket`, and every stub what `stubConfig` says of its domain", async () => {
  class Other {}
  await runtime.close();
  begin({ WebSocket: Other, stubConfig: { d: { maxDelay: 5 }, f: { maxDelay: 6 } } });
  for (const domain of ["d", "f"]) {
    await catalogues.add(domain);
    bus.postMessage(create(`hyperty://${domain}/x`));
    await loaded(domain === "d" ? 1 : 2);
  }
  const [home, abroad] = world.started.map(({ config }) => config);
  assert.deepEqual([home.WebSocket, home.maxDelay], [Other, 5]);
  assert.deepEqual([abroad.WebSocket, abroad.maxDelay], [undefined, 6]);
});

test("a stub that starts after its load has ended is ended, and not in the way of the next load", async () => {
  await runtime.close();
  begin({ times: { loadTime: 5_000, leastRetry: 1_000 } });
  let release;
  world.starts = [new Promise((resolve) => (release = resolve))];
  const slow = STUB.replace("export function", "export async function").replace(
    "bus.addListener",
    "await globalThis.world.starts.shift(); bus.addListener",
  );
  await catalogues.add("f", slow);
  const first = answer(create("hyperty://f/x", 1));
  await until(() => world.stubs[runtime.stubs.get("f")?.url], "the start");
  await clock.turn(5_000);
  assert.equal((await first).code, 504);
  await clock.turn(1_000);
  bus.postMessage(create("hyperty://f/x", 2));
  await until(() => world.started[0]?.sent.length, "the message");
  release();
  await until(() => world.started[1]?.calls.length, "the end of the first one");
  assert.deepEqual(sentBy(world.started[0]), [["hyperty://f/x", 2]]);
  assert.deepEqual(world.started[1].calls, [["disconnect"]]);
});

test("R33 a module that cannot be started is 502", async () => {
  for (const source of [
    "export const nothing = 1;",
    "this is no script",
    `throw new Error("no")`,
  ]) {
    await runtime.close();
    begin();
    await catalogues.add("f", source);
    assert.equal((await answer(create("hyperty://f/x"))).code, 502);
  }
});

test("R34 back-ends are reached by the stub of their domain", async () => {
  await catalogues.add("d");
  await catalogues.add("f");
  for (const to of [
    "global://registry/",
    "domain://registry.f",
    "domain://MSG-NODE.F/sm",
    "domain://registry.d/x",
  ]) {
    bus.postMessage(create(to));
  }
  await loaded(2);
  const by = (domain) => world.started.find(({ url }) => url.startsWith(`runtime://${domain}/`));
  await until(() => by("d").sent.length === 2 && by("f").sent.length === 2, "two each");
  assert.deepEqual(
    sentBy(by("d")).map(([to]) => to),
    ["global://registry/", "domain://registry.d/x"],
  );
});

test("a user of a legacy network is reached through the home node, its gateway", async () => {
  await catalogues.add("d");
  bus.postMessage(create("xmpp://legacy.example/bob"));
  await loaded();
  assert.match(world.started[0].url, /^runtime:\/\/d\//);
});

test("R35 a legacy address needs an interworking stub", async () => {
  assert.equal((await answer(create("sip:bob@legacy.example"))).code, 404);
  await runtime.close();
  begin({ interworking: ["sip.legacy.example"] });
  await catalogues.add("sip.legacy.example", STUB, { interworking: true });
  bus.postMessage(create("sip:bob@legacy.example"));
  await loaded();
  assert.match(world.started[0].url, /^runtime:\/\/sip\.legacy\.example\//);
});

test("R36 domain-idp is the domain's identity proxy, never a node's stub", async () => {
  await catalogues.add("f");
  assert.equal(
    (await answer({ type: "execute", from: "hyperty://d/a", to: "domain-idp://f", body: {} })).code,
    404,
  );
  assert.deepEqual(world.started, []);
  assert.ok(catalogues.asked.every((each) => each.includes("/idp-proxy/f")));
});

test("R67 what logs in at home goes to no stub of another domain", async () => {
  await catalogues.add("d");
  await catalogues.add("f");
  await runtime.logIn({ accessToken: "secret of d" });
  bus.postMessage(create("hyperty://f/x"));
  await until(() => world.started.length === 2 && world.started[1].sent.length, "the message at f");
  await runtime.connect("f");
  const [home, abroad] = world.started.map(({ sent, calls, config }) =>
    JSON.stringify({ sent, calls, config }),
  );
  assert.ok(home.includes("secret of d"));
  assert.ok(abroad.includes("connect") && !abroad.includes("secret of d"), abroad);
});

test("R37 a new version takes over beside the old one; of 100 messages none is lost", async () => {
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x", -1));
  await loaded();
  const [old] = world.started;
  bus.addListener("hyperty://d/a", () => {});
  await until(() => old.sent.length, "the first message");
  old.bring({
    id: old.sent[0].id,
    type: "response",
    from: "hyperty://f/x",
    to: "hyperty://d/a",
    body: { code: 200 },
  });
  await settled();
  await catalogues.add("f", STUB, { version: "2.0" });
  const codes = [];
  world.sent = (stub, { id, from, to }) => {
    const bring = () =>
      stub.bring({ id, type: "response", from: to, to: from, body: { code: 200 } });
    if (stub === old) setTimeout(bring, 30);
    else bring();
  };
  const renewed = runtime.renew("f");
  for (let n = 0; n < 100; n += 1) {
    bus.postMessage(create("hyperty://f/x", n), ({ body }) => codes.push(body.code));
    if (n % 10 === 0) {
      await settled();
      await clock.turn(200);
    }
  }
  await until(() => codes.length === 100, "a hundred answers");
  await clock.turn(1000);
  await until(() => old.calls.some(([call]) => call === "disconnect"), "the end of the old one");
  await clock.turn(1000);
  await renewed;
  assert.deepEqual(new Set(codes), new Set([200]));
  assert.equal(world.started.length, 2);
  assert.equal(runtime.stubs.get("f").descriptor.version, "2.0");
});

test("R37 the catalogue is asked for the version every quarter of an hour", async () => {
  await catalogues.add("f");
  bus.postMessage(create("domain://msg-node.f/sm", 1));
  runtime.stubs.get("f");
  await loaded();
  await until(() => runtime.stubs.get("f").status === "created", "created");
  world.started[0].say("live");
  runtime.stubs.get("f").held.set("comm://f/o", { from: `${R}/sm`, to: "domain://msg-node.f/sm" });
  await clock.turn(900_000);
  assert.deepEqual(catalogues.asked, [`GET ${F}`, `GET ${F}/version`]);
});

test("R37 a catalogue that does not agree with itself replaces nothing; one that has a newer version does", async () => {
  await catalogues.add("f");
  catalogues.answers.set(`${F}/version`, { text: "<html>Welcome</html>" });
  bus.postMessage(create("domain://msg-node.f/sm", 1));
  await loaded();
  await until(() => runtime.stubs.get("f").status === "created", "created");
  world.started[0].say("live");
  runtime.stubs.get("f").held.set("comm://f/o", { from: `${R}/sm`, to: "domain://msg-node.f/sm" });
  await clock.turn(900_000);
  await until(() => catalogues.asked.length >= 3, "the look at the descriptor");
  await settled();
  assert.equal(world.started.length, 1);
  await catalogues.add("f", STUB, { version: "2.0" });
  await clock.turn(900_000);
  await until(() => world.started.length === 2, "the newer one");
});

test("R39 a component that runs is not started twice; deleted twice is an error too", async () => {
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  await until(() => runtime.stubs.get("f").status === "created", "created");
  const { sandbox, url } = runtime.stubs.get("f");
  const again = { url, kind: "stub", domain: "f", sourceCode: STUB, config: {}, onMessage() {} };
  await assert.rejects(
    sandbox.create(again),
    ({ code, message }) => code === 500 && message.includes("already exist!"),
  );
  await sandbox.delete(url);
  assert.deepEqual(world.started[0].calls, [["disconnect"]]);
  await assert.rejects(
    sandbox.delete(url),
    ({ code, message }) => code === 500 && message.includes("does not exist!"),
  );
});

test("R43 a stub cannot speak as a hyperty of this runtime, nor as the home domain", async () => {
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  const heard = [];
  bus.addListener("hyperty://d/a", () => {});
  bus.addListener("hyperty://d/b", (message) => heard.push(message));
  for (const from of [
    "hyperty://d/a",
    `${R}/sm`,
    "hyperty-runtime://d/1/sm",
    "hyperty://d/somebody",
  ]) {
    world.started[0].bring({ id: 5, type: "create", from, to: "hyperty://d/b", body: {} });
  }
  await settled();
  assert.deepEqual(heard, []);
  assert.equal(runtime.counters["stub.forged"], 4);
  assert.deepEqual(
    world.started[0].sent.filter(({ type }) => type === "response").map(({ body }) => body.code),
    [403, 403, 403, 403],
  );
});

test("R44 a stub cannot say the status of another one", async () => {
  await catalogues.add("f");
  await catalogues.add("g");
  bus.postMessage(create("hyperty://f/x"));
  bus.postMessage(create("hyperty://g/x"));
  await loaded(2);
  const [one, two] = world.started;
  await until(() => [...runtime.stubs].every(({ status }) => status === "created"), "created");
  one.bring({ type: "update", from: one.url, to: `${two.url}/status`, body: { value: "failed" } });
  one.bring({ type: "update", from: two.url, to: `${two.url}/status`, body: { value: "failed" } });
  await settled();
  assert.deepEqual(
    [...runtime.stubs].map(({ status }) => status),
    ["created", "created"],
  );
});

test("R46 a.example and aa.example have a sandbox each", async () => {
  await catalogues.add("a.example");
  await catalogues.add("aa.example");
  bus.postMessage(create("hyperty://a.example/x"));
  bus.postMessage(create("hyperty://aa.example/x"));
  await loaded(2);
  assert.equal(all.channels.length, 2);
});

test("R49 statuses come in order, each repeated for the runtime", async () => {
  await catalogues.add("f");
  const told = [];
  bus.addListener(`${R}/status`, ({ from, body }) => told.push([from, body.value, body.resource]));
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  const { url } = world.started[0];
  const original = [];
  bus.addListener(`${url}/status`, ({ from, to }) => original.push([from, to]));
  world.started[0].say("in-progress");
  world.started[0].say("live");
  await settled();
  assert.deepEqual(
    told,
    ["deploying", "created", "in-progress", "live"].map((value) => [R, value, url]),
  );
  assert.deepEqual(original, [
    [url, `${url}/status`],
    [url, `${url}/status`],
  ]);
});

test("R50 connected means live", async () => {
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  world.started[0].say("connected");
  await settled();
  assert.equal(runtime.stubs.get("f").status, "live");
});

test("R53 going off line and on line is told on the runtime's status", async () => {
  await runtime.close();
  const events = new EventTarget(); // stands for the page's own, which Node.js does not have
  const names = ["addEventListener", "removeEventListener"];
  const before = names.map((name) => Object.getOwnPropertyDescriptor(globalThis, name));
  const put = (name, value) =>
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  for (const name of names) put(name, events[name].bind(events));
  try {
    begin();
    const told = [];
    bus.addListener(`${R}/status`, ({ from, body }) => told.push([from, body.value]));
    for (const word of ["offline", "online"]) events.dispatchEvent(new Event(word));
    await settled();
    assert.deepEqual(told, [
      [R, "offline"],
      [R, "online"],
    ]);
    await runtime.close();
    events.dispatchEvent(new Event("offline"));
    await settled();
    assert.equal(told.length, 2);
  } finally {
    names.forEach((name, at) =>
      before[at] ? Object.defineProperty(globalThis, name, before[at]) : delete globalThis[name],
    );
  }
});

test("R54 a closing runtime tells its hyperties and disconnects its stubs", async () => {
  await catalogues.add("f");
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  await until(() => runtime.stubs.get("f").status === "created", "created");
  const told = [];
  const { url, bus: minibus } = runtime.addHyperty();
  minibus.addListener(url, ({ id, type, from, to, body }) => {
    told.push([type, from, body.method]);
    minibus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200 } });
  });
  await runtime.close();
  assert.deepEqual(told, [["execute", `${R}/registry/`, "close"]]);
  assert.deepEqual(world.started[0].calls, [["disconnect"]]);
});

test("a stub that nobody needs is unloaded after a minute; the next message loads it again", async () => {
  await catalogues.add("f");
  bus.postMessage({ type: "update", from: "comm://d/o", to: "comm://f/o/changes", body: {} });
  await loaded();
  await until(() => world.started[0].sent.length, "the message");
  world.started[0].say("live");
  await clock.turn(95_000);
  await until(() => !runtime.stubs.get("f"), "the end of it");
  assert.deepEqual(world.started[0].calls, [["disconnect"]]);
  bus.postMessage(create("hyperty://f/x"));
  await loaded(2);
});

test("a stub through which addresses are held stays", async () => {
  await catalogues.add("f");
  const sm = "domain://msg-node.f/sm";
  bus.postMessage({
    type: "subscribe",
    from: `${R}/sm`,
    to: sm,
    body: { resources: ["comm://f/o/changes"] },
  });
  await loaded();
  world.started[0].say("live");
  await clock.turn(300_000);
  assert.ok(runtime.stubs.get("f"));
});

test("the home domain's stub connects at log-in, with the identity", async () => {
  await catalogues.add("d");
  const entry = await runtime.logIn({ assertion: "x" });
  assert.equal(entry.status, "live");
  assert.deepEqual(world.started[0].calls, [["connect", { assertion: "x" }]]);
});

test("routing: a domain set to `node` is reached through the home stub", async () => {
  await runtime.close();
  begin({ routing: { f: "node" } });
  await catalogues.add("d");
  bus.postMessage(create("hyperty://f/x", 1));
  await loaded();
  await until(() => world.started[0].sent.length, "the message");
  assert.match(world.started[0].url, /^runtime:\/\/d\//);
});

test("R72 what a stub that cannot run here would take goes through the node, in order, until it can", async () => {
  await runtime.close();
  begin({ routing: { f: "stub-else-node" } });
  await catalogues.add("d");
  await catalogues.add("f", STUB, { constraints: { windowSandbox: true } });
  for (const number of [1, 2, 3]) bus.postMessage(create("hyperty://f/x", number));
  await until(() => world.started[0]?.sent.length === 3, "the messages");
  const [home] = world.started;
  assert.match(home.url, /^runtime:\/\/d\//);
  assert.deepEqual(sentBy(home), [
    ["hyperty://f/x", 1],
    ["hyperty://f/x", 2],
    ["hyperty://f/x", 3],
  ]);
  assert.equal(runtime.stubs.get("f").code, 501);
  bus.postMessage(create("hyperty://f/x", 4));
  await until(() => home.sent.length === 4, "what comes later");
  await catalogues.add("f");
  await clock.turn(5_000);
  bus.postMessage(create("hyperty://f/x", 5));
  await loaded(2);
  await until(() => world.started[1].sent.length, "the domain's own stub");
  assert.match(world.started[1].url, /^runtime:\/\/f\//);
});

test("R73 what a node brings back for another domain is not sent out again: one delivery, and 404", async () => {
  await runtime.close();
  begin({ routing: { f: "node" } });
  await catalogues.add("d");
  world.sent = (stub, message) =>
    message.to !== "domain://msg-node.d/sm" &&
    stub.bring({ ...message, body: { ...message.body } });
  assert.equal((await answer(create("hyperty://f/x", 1))).code, 404);
  const [stub] = world.started;
  assert.deepEqual(
    stub.sent.map(({ type }) => type),
    ["create"],
  );
});

test("a message larger than the stub's maxFrame is 413", async () => {
  await catalogues.add("f", STUB, { configuration: { url: "wss://f/ws", maxFrame: 2000 } });
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  await until(() => runtime.stubs.get("f").status === "created", "created");
  assert.equal(
    (await answer({ ...create("hyperty://f/x"), body: { text: "x".repeat(3000) } })).code,
    413,
  );
});

test("an address without a domain is 400", async () => {
  assert.equal((await answer(create("nowhere"))).code, 400);
});

test("an answer goes back through the stub that brought the question, a provisional one before it too", async () => {
  await catalogues.add("d", STUB, {}, "https://d/.well-known/protocolstub/default");
  await catalogues.add("f");
  bus.postMessage(create("hyperty://d/elsewhere", 1));
  bus.postMessage(create("hyperty://f/x", 2));
  await loaded(2);
  const [home, foreign] = ["d", "f"].map((domain) =>
    world.started.find(({ url }) => url.startsWith(`runtime://${domain}/`)),
  );
  await until(() => home.sent.length && foreign.sent.length, "both stubs are loaded");
  bus.addListener("hyperty://d/mine", ({ id, from, to }) => {
    for (const code of [100, 200])
      bus.postMessage({ id, type: "response", from: to, to: from, body: { code } });
  });
  for (const stub of [home, foreign]) {
    stub.sent.length = 0;
    stub.bring({ id: 7, type: "read", from: "hyperty://f/asks", to: "hyperty://d/mine", body: {} });
    await until(() => stub.sent.length === 2, "the answers");
    assert.deepEqual(
      stub.sent.map(({ to, body }) => [to, body.code]),
      [
        ["hyperty://f/asks", 100],
        ["hyperty://f/asks", 200],
      ],
    );
  }
  bus.postMessage({
    id: 7,
    type: "response",
    from: "hyperty://d/mine",
    to: "hyperty://f/asks",
    body: { code: 200 },
  });
  await until(() => foreign.sent.length === 3, "an answer that nobody asked for, by its domain");
});
