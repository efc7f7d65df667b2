/** The forms of stubs, and what descriptors say of them, case by case. The node and the Python runtime read the same file. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkDescriptor } from "../src/descriptor.js";
import { inProcessChannel } from "../src/sandbox/in-process.js";
import { exportsOf, startedStub } from "../src/sandbox/module-forms.js";
import { endWorld, newWorld } from "./world.mjs";

const CASES = globalThis.process
  ? JSON.parse(
      (await import("node:fs")).readFileSync(new URL("field-stubs.json", import.meta.url), "utf8"),
    )
  : await (await fetch("/tests/field-stubs.json")).json();
const AT = "https://f/.well-known/protocolstub/default";
const CONTEXT = { domain: "f", platform: "browser", capabilities: ["ws", "wss"] };

const ANSWERS = `export function activate(url, bus) {
  bus.addListener("*", ({ id, from, to }) => bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 404 } }));
  bus.postMessage({ type: "update", from: url, to: url + "/status", body: { value: "live" } });
}`;

const importModule = (source) => import(`data:text/javascript,${encodeURIComponent(source)}`);

async function start(source) {
  const said = [];
  const { form, exported } = await exportsOf(source, importModule);
  const bus = { postMessage: (message) => said.push(message.body.value), addListener: () => {} };
  const instance = await startedStub(exported, "runtime://f/protostub/1", bus, {});
  return { form, said, instance };
}

for (const { name, source, form } of CASES.forms) {
  test(`a stub that is ${name} starts`, async () => {
    const started = await start(source);
    assert.deepEqual([started.form, started.said], [form, ["created"]]);
    assert.ok(started.instance);
  });
}

/** Have the core's own realm create a component: what it said, and the answer. */
async function inOwnRealm(source) {
  const said = [];
  const channel = inProcessChannel(importModule);
  const answered = new Promise((resolve) => {
    channel.onFrame = ({ url, message }) =>
      url ? said.push(message.body.value) : resolve(message);
  });
  const body = { url: "runtime://f/protostub/1", sourceCode: source, config: {} };
  const to = "hyperty-runtime://sandbox/internal";
  channel.send({ message: { id: 1, type: "create", from: "runtime://d/1", to, body } });
  return { said, body: (await answered).body };
}

for (const { name, source } of CASES.forms) {
  test(`a home stub that is ${name} starts in the core's realm`, async () => {
    assert.deepEqual(await inOwnRealm(source), { said: ["created"], body: { code: 200 } });
  });
}

test("a home stub is no script made of text where its form does not ask for one", async () => {
  const made = globalThis.Function;
  globalThis.Function = new Proxy(made, { construct: () => assert.fail("a page may forbid it") });
  try {
    for (const { source } of CASES.forms.filter(({ form }) => form === "module"))
      assert.equal((await inOwnRealm(source)).body.code, 200);
  } finally {
    globalThis.Function = made;
  }
});

for (const [constraints, code] of [
  [{ browser: true }, 404],
  [{ browser: true, ws: true }, 404],
  [{ browser: true, webrtc: true }, 501],
  [{ windowSandbox: true }, 501],
]) {
  test(`in Node.js a stub of ${JSON.stringify(constraints)} answers ${code}`, async () => {
    const it = newWorld({ platform: "node" });
    try {
      await it.catalogues.add("f", ANSWERS, { constraints });
      const asked = { type: "read", from: `${it.runtime.url}/x`, to: "comm://f/none" };
      await assert.rejects(it.bus.request(asked), { code });
    } finally {
      await endWorld(it);
    }
  });
}

for (const { name, source, told } of CASES.notStarted) {
  test(`what is ${name} does not start, and says why`, async () => {
    await assert.rejects(start(source), (error) => error.message.includes(told));
  });
}

for (const { name, descriptor, endpoint, isBeside } of CASES.descriptors) {
  test(`a descriptor ${name} is read`, () => {
    const url = `${AT}${isBeside ? ".ps.json" : ""}`;
    const read = checkDescriptor(descriptor, { ...CONTEXT, url });
    assert.equal(read.endpoint, endpoint);
    assert.deepEqual(
      [read.source, read.sourceURL],
      isBeside ? [null, `${AT}.ps.js`] : ["SCRIPT", ""],
    );
  });
}

for (const { name, descriptor, field } of CASES.refused) {
  test(`a descriptor ${name} is refused`, () => {
    assert.throws(
      () => checkDescriptor(descriptor, { ...CONTEXT, url: AT }),
      (error) => error.message.startsWith(`${field}: `),
    );
  });
}
