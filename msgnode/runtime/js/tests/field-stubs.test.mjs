/** The forms of stubs, and what descriptors say of them, case by case. The node and the Python runtime read the same file. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkDescriptor } from "../src/descriptor.js";
import { exportsOf, startedStub } from "../src/sandbox/module-forms.js";

const CASES = globalThis.process
  ? JSON.parse(
      (await import("node:fs")).readFileSync(new URL("field-stubs.json", import.meta.url), "utf8"),
    )
  : await (await fetch("/tests/field-stubs.json")).json();
const AT = "https://f/.well-known/protocolstub/default";
const CONTEXT = { domain: "f", platform: "browser", capabilities: ["ws", "wss"] };

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
