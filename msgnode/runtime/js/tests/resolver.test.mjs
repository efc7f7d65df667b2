/** Resolving and loading: the cases that both languages share, and what is JavaScript's alone. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { stubFor } from "../src/addresses.js";
import { AnswerError } from "../src/common.js";
import { cases, like } from "./cases.mjs";
import { settled } from "./fake-clock.mjs";
import { HOME, R, STUB, descriptorOf, endWorld, newWorld, until } from "./world.mjs";

const A = "hyperty://d/a";
const F = entryAt("f");
const SOURCES = {
  stub: STUB,
  default: `${STUB.replace("export function", "function")} export default { activate };`,
  class: `${STUB.replace("export function", "function")}
    export default class { _start(url, bus, config, factory) { activate(url, bus, config); } }`,
  silent: `export default class { _start(url, bus) {
    bus.addListener("*", ({ id, from, to }) =>
      bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200 } }));
  } }`,
  slow: STUB.replace('stub.say("in-progress"); stub.say("live");', "return new Promise(() => {});"),
  nothing: "export const nothing = 1;",
  "no script": "this is no script",
  throws: `throw new Error("no")`,
};

function entryAt(domain, name = "default") {
  return `https://${domain}/.well-known/protocolstub/${name}`;
}

/** The steps of a case: a runtime of the domain d, catalogues, and stubs that do as they are told. */
class Play {
  #all;
  #names;
  #answers = [];
  #heard = [];
  #told = [];
  #asked = 0; // requests that were looked at
  #read = new Map(); // stub -> messages that were looked at
  #held = new Map(); // domain -> what lets its answers go
  #way = ""; // what stubs do by themselves: answer, or loop

  constructor({ interworking = [], routing = {}, ...options } = {}) {
    this.#names = { interworking: new Set(interworking), routing };
    this.#all = newWorld({ interworking, routing, ...options });
    const { bus, catalogues, world } = this.#all;
    const { fetch } = catalogues;
    catalogues.fetch = async (url, options) => {
      const known = fetch(url, options);
      await this.#held.get(new URL(url).host)?.promise;
      return known;
    };
    this.#all.runtime.catalogue.fetch = catalogues.fetch;
    bus.addListener(`${R}/status`, (message) => this.#told.push(message));
    world.sent = (stub, message) => {
      const { id, type, from, to } = message;
      if (this.#way === "loop") stub.bring({ ...message });
      else if (this.#way && type !== "response")
        stub.bring({ id, type: "response", from: to, to: from, body: { code: 200 } });
    };
  }

  async steps(steps) {
    for (const [act, ...words] of steps) await this[act.replaceAll(" ", "_")](...words);
  }

  end = () => endWorld(this.#all);

  /** "f 2" is the second stub of f that was started; it is waited for. */
  async #stub(name) {
    const [domain, number = 1] = name.split(" ");
    const found = () =>
      this.#all.world.started.filter(({ url }) => url.startsWith(`runtime://${domain}/`));
    await until(() => found().length >= number, `the stub ${name}`);
    return found()[number - 1];
  }

  // --- what happens -------------------------------------------------------------------------------

  settle = settled;
  turn = (seconds) => this.#all.clock.turn(seconds * 1000);
  stubs = (way) => void (this.#way = way);
  redirect = (domain) => void this.#all.catalogues.answers.set(entryAt(domain), { status: 302 });

  async serve(domain, { source = "stub", sourcePackage, ...changes } = {}, at = domain) {
    const text = SOURCES[source];
    const known = (await descriptorOf(domain, text)).sourcePackage;
    const sent = sourcePackage === null ? {} : { ...known, ...sourcePackage };
    const url = at === domain ? entryAt(domain) : entryAt(at, domain);
    await this.#all.catalogues.add(domain, text, { sourcePackage: sent, ...changes }, url);
  }

  /** An entry whose source is a file beside it. */
  async beside(domain) {
    const { integrity } = (await descriptorOf(domain)).sourcePackage;
    const url = `https://${domain}/files/stub`;
    const changes = { sourcePackageURL: url, sourcePackage: { integrity } };
    await this.#all.catalogues.add(domain, STUB, changes);
    this.#all.catalogues.answers.set(url, { text: STUB });
  }

  version(domain, text) {
    this.#all.catalogues.answers.set(`${entryAt(domain)}/version`, { text });
  }

  hold(domain) {
    let go;
    this.#held.set(domain, { promise: new Promise((resolve) => (go = resolve)), go });
  }

  let_go() {
    for (const { go } of this.#held.values()) go();
  }

  #post(type, from, to, body) {
    this.#all.bus.postMessage({ type, from, to, body }, (answer) => this.#answers.push(answer));
  }

  send(to, count) {
    for (let n = 0; n < count; n += 1) this.#post("create", A, to.replace("%", n % 3), { n });
  }

  hold_address(address) {
    this.#post("subscribe", `${R}/sm`, "domain://msg-node.f/sm", { resources: [address] });
  }

  give_back(address) {
    this.#post("unsubscribe", `${R}/sm`, "domain://msg-node.f/sm", { resources: [address] });
  }

  async say(stub, ...words) {
    (await this.#stub(stub)).say(...words);
    await settled();
  }

  async bring(stub, message) {
    (await this.#stub(stub)).bring({ id: 5, body: {}, ...message });
    await settled();
  }

  async says_of(stub, sender, other, value) {
    const [from, to] = [(await this.#stub(sender)).url, (await this.#stub(other)).url];
    await this.bring(stub, { type: "update", from, to: `${to}/status`, body: { value } });
  }

  listen(address) {
    this.#all.bus.addListener(address, (message) => this.#heard.push(message));
  }

  async original(stub) {
    this.listen(`${(await this.#stub(stub)).url}/status`);
  }

  answers(address, ...codes) {
    const { bus } = this.#all;
    bus.addListener(address, ({ id, from, to }) => {
      for (const code of codes)
        bus.postMessage({ id, type: "response", from: to, to: from, body: { code } });
    });
  }

  log_in = async (identity) => void (await this.#all.runtime.logIn(identity));
  require = (domain) =>
    void this.#all.runtime.resolver.entryFor({ kind: "domain", key: domain, domain });
  close = () => this.#all.runtime.close();

  // --- what is so ---------------------------------------------------------------------------------

  async ask(to, code, word = "", size = 0) {
    const asked = { type: "create", from: A, to, body: { text: "x".repeat(size) } };
    const body = await this.#all.bus.request(asked).catch((error) => {
      if (!(error instanceof AnswerError)) throw error;
      return error.body;
    });
    assert.equal(body.code, code);
    assert.ok(body.desc.includes(word), body.desc);
  }

  asks = ([to, code]) => this.ask(to, code);

  async answered(count, code) {
    await this.last_answer(count, code);
    const codes = this.#answers.map(({ body }) => body.code);
    assert.deepEqual(codes, Array(count).fill(code));
  }

  async last_answer(count, code, word = "") {
    await until(() => this.#answers.length >= count, `${count} answers`);
    await settled();
    const { body } = this.#answers.at(-1);
    assert.equal(body.code, code);
    assert.ok((body.desc ?? "").includes(word), body.desc);
  }

  /** What a stub was given since it was last looked at: all of it, by number, [address, number] or fields. */
  async handed(name, ...expected) {
    const stub = await this.#stub(name);
    const read = this.#read.get(stub) ?? 0;
    await until(() => stub.sent.length >= read + expected.length, `what ${name} is handed`);
    await settled();
    const found = stub.sent.slice(read).map((message, at) => {
      if (Array.isArray(expected[at])) return [message.to, message.body.n];
      return typeof expected[at] === "object" ? like(expected[at], message) : message.body.n;
    });
    assert.deepEqual(found, expected);
    this.#read.set(stub, stub.sent.length);
  }

  async busy(name) {
    const stub = await this.#stub(name);
    await until(() => stub.sent.length, `something for ${name}`);
  }

  async calls(name, ...expected) {
    const stub = await this.#stub(name);
    await until(() => stub.calls.length >= expected.length, `${name} is called`);
    await settled();
    const given = stub.calls.map((call) => call.filter((each) => each !== undefined));
    assert.deepEqual(given, expected);
  }

  /** How often a stub was handed a request that it brings back. */
  loops(count) {
    const found = this.#all.world.started[0].sent.filter(({ type }) => type === "create");
    assert.equal(found.length, count);
  }

  config = async (name, expected) =>
    assert.deepEqual(like(expected, (await this.#stub(name)).config), expected);
  url = async (name, pattern) => assert.match((await this.#stub(name)).url, new RegExp(pattern));

  async started(count) {
    await until(() => this.#all.world.started.length >= count, `${count} stubs`);
    await settled();
    assert.equal(this.#all.world.started.length, count);
  }

  status(key, expected) {
    const { stubs } = this.#all.runtime;
    return until(() => (stubs.get(key)?.status ?? "") === expected, `${expected} of ${key}`);
  }

  status_not = (key, other) => assert.notEqual(this.#all.runtime.stubs.get(key).status, other);
  failures = (key, count) => assert.equal(this.#all.runtime.stubs.get(key).failures, count);

  async becomes(name, [word, status]) {
    await this.say(name, word);
    await this.status(name, status);
  }

  async told(name, ...expected) {
    const { url } = await this.#stub(name);
    await settled();
    const of = this.#told.filter(({ body }) => body.resource === url);
    assert.deepEqual(
      of.map(({ from, body }) => [from, body.value]),
      expected.map((value) => [R, value]),
    );
  }

  async heard(...expected) {
    await settled();
    assert.deepEqual(
      this.#heard.map((each, at) => like(expected[at] ?? {}, each)),
      expected,
    );
  }

  counted = (name, count) => assert.equal(this.#all.runtime.counters[name] ?? 0, count);

  /** How many requests the catalogues had since they were last looked at. */
  asked(count) {
    const { asked } = this.#all.catalogues;
    if (count !== undefined) assert.equal(asked.length - this.#asked, count, asked.join("\n"));
    this.#asked = asked.length;
  }

  /** What was asked last: by this name, at this domain. */
  found(domain, name) {
    const url = this.#all.catalogues.asked.at(-1).split(" ")[1];
    assert.deepEqual([new URL(url).host, url.split("/").at(-1)], [domain, name]);
  }

  async looked() {
    const { asked } = this.#all.catalogues;
    const isLook = (each) => !each.endsWith("/version");
    await until(() => asked.slice(this.#asked).some(isLook), "a look at the descriptor");
    await settled();
  }

  reaches(expected, to) {
    const { kind, key, domain } = stubFor(to, HOME, this.#names);
    assert.equal(kind === "idp" ? `idp ${domain}` : key, expected, to);
  }

  /** Loads that fail are asked for again after these waits, and not before. */
  async retried(...waits) {
    for (const wait of waits) {
      this.asked();
      await this.ask("hyperty://f/x", 404);
      assert.ok(this.#all.catalogues.asked.length > this.#asked, `after ${wait} s`);
      this.asked();
      await this.turn(wait - 0.5);
      await this.ask("hyperty://f/x", 404);
      this.asked(0);
      await this.turn(0.5);
    }
  }
}

for (const { name, with: options, steps } of await cases("resolver"))
  test(name, async () => {
    const play = new Play(options);
    await play.steps(steps);
    await play.end();
  });

// --- what is JavaScript's alone ---------------------------------------------------------------------

let all;
let runtime, bus, clock, catalogues, world;

function begin(options) {
  all = newWorld(options);
  ({ runtime, bus, clock, catalogues, world } = all);
}

const create = (to, n = 0) => ({ type: "create", from: A, to, body: { n } });
/** The code and text of the answer to a request. */
const answer = (message) => bus.request(message).catch((error) => error.body);
const loaded = (count = 1) => until(() => world.started.length >= count, `${count} stubs`);

/** A test in a world of its own. */
function testAlone(name, act) {
  test(name, async () => {
    begin();
    await act();
    await endWorld({ runtime, clock });
  });
}

testAlone(
  "R28 where the domain's keys are listed, the source must be signed by one of them",
  async () => {
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
  },
);

testAlone("R32 the catalogue is asked for a stub that suits", async () => {
  const other = await descriptorOf("f");
  const python = { ...other, language: "PYTHON", constraints: { python: true } };
  catalogues.answers.set(F, (method) => ({ json: method === "POST" ? other : python }));
  bus.postMessage(create("hyperty://f/x"));
  await loaded();
  assert.deepEqual(catalogues.asked, [`GET ${F}`, `POST ${F}`]);
});

testAlone(
  "the home stub gets the class `WebSocket`, and every stub what `stubConfig` says of its domain",
  async () => {
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
  },
);

testAlone(
  "a stub that starts after its load has ended is ended, and not in the way of the next load",
  async () => {
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
    assert.deepEqual(
      world.started[0].sent.map(({ body }) => body.n),
      [2],
    );
    assert.deepEqual(world.started[1].calls, [["disconnect"]]);
  },
);

testAlone(
  "R39 a component that runs is not started twice; deleted twice is an error too",
  async () => {
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
  },
);

testAlone("R46 a.example and aa.example have a sandbox each", async () => {
  await catalogues.add("a.example");
  await catalogues.add("aa.example");
  bus.postMessage(create("hyperty://a.example/x"));
  bus.postMessage(create("hyperty://aa.example/x"));
  await loaded(2);
  assert.equal(all.channels.length, 2);
});

testAlone("R53 going off line and on line is told on the runtime's status", async () => {
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

testAlone("R54 a closing runtime tells its hyperties and disconnects its stubs", async () => {
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

testAlone(
  "one that is told to connect, and is silent, is as late as one with a message",
  async () => {
    await catalogues.add("f", STUB.replace('stub.say("in-progress"); stub.say("live");', ""));
    const connecting = runtime.connect("f");
    connecting.catch(() => {});
    await until(() => world.started[0]?.calls.length, "connect()");
    await assert.rejects(Promise.all([connecting, clock.turn(30_000)]), /does not answer in time/);
    await clock.turn(30_000);
    assert.equal(runtime.stubs.get("f").status, "deployment-failed");
  },
);
