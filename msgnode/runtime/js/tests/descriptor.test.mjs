/** Descriptors: what is wrong in any field is refused with the field's name; digests. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_SOURCE, checkDescriptor } from "../src/descriptor.js";
import { checkIntegrity, digestOf } from "../src/digest.js";
import { sha256 } from "../src/sha256.js";
import { descriptorOf } from "./world.mjs";

const good = await descriptorOf("f");
const CONTEXT = {
  domain: "f",
  url: "https://f/.well-known/protocolstub/default",
  platform: "node",
  capabilities: ["ws", "wss"],
};
const check = (raw, more) => checkDescriptor(raw, { ...CONTEXT, ...more });
const inner = (changes) => ({ sourcePackage: { ...good.sourcePackage, ...changes } });
const hosted = (url) => ({ sourcePackageURL: url, sourcePackage: {} });

test("a good descriptor is read", () => {
  const read = check(good);
  assert.deepEqual(
    [read.cguid, read.version, read.source],
    ["guid-f", "1.0", good.sourcePackage.sourceCode],
  );
  assert.deepEqual(read.configuration, { url: "wss://msg-node.f/ws" });
});

for (const [changes, field, code = 502] of [
  [{ cguid: 7 }, "cguid"],
  [{ type: "HYPERTY" }, "type"],
  [{ type: ["PROTOSTUB"] }, "type"],
  [{ version: {} }, "version"],
  [{ objectName: 7 }, "objectName"],
  [{ description: 1 }, "description"],
  [{ language: 1 }, "language"],
  [{ language: "PYTHON" }, "language", 501],
  [{ language: "TYPE_SCRIPT" }, "language", 501],
  [{ signature: {} }, "signature"],
  [{ messageSchema: [] }, "messageSchema"],
  [{ messageSchemas: "" }, "messageSchemas"],
  [{ hypertyType: {} }, "hypertyType"],
  [{ dataObjects: "x" }, "dataObjects"],
  [{ interworking: "no" }, "interworking"],
  [{ idpProxy: 0 }, "idpProxy"],
  [{ accessControlPolicy: 1 }, "accessControlPolicy"],
  [{ mutualAuthentication: 1 }, "mutualAuthentication"],
  [{ constraints: [] }, "constraints"],
  [{ constraints: { node: "yes" } }, "constraints.node"],
  [{ constraints: { browser: true } }, "constraints.browser", 501],
  [{ constraints: { node: true, mic: true } }, "constraints.mic", 501],
  [{ configuration: "{" }, "configuration"],
  [{ configuration: [] }, "configuration"],
  [{ configuration: { url: 7 } }, "configuration.url"],
  [{ configuration: { url: "not a url" } }, "configuration.url"],
  [{ configuration: { url: "ws://f/ws" } }, "configuration.url"],
  [{ configuration: { url: "wss://ff/ws" } }, "configuration.url"],
  [{ configuration: { url: "wss://f.evil.example/ws" } }, "configuration.url"],
  [{ configuration: { url: "javascript:alert(1)" } }, "configuration.url"],
  [{ configuration: { url: "wss://a;sandbox.f/ws" } }, "configuration.url"],
  [{ configuration: { url: 'wss://a".f/ws' } }, "configuration.url"],
  [{ sourcePackage: [] }, "sourcePackage"],
  [{ sourcePackage: {} }, "sourcePackage.sourceCode"],
  [inner({ sourceCode: 5 }), "sourcePackage.sourceCode"],
  [inner({ sourceCode: "" }), "sourcePackage.sourceCode"],
  [inner({ sourceCode: "x".repeat(MAX_SOURCE + 1) }), "sourcePackage.sourceCode"],
  [inner({ encoding: "rot13" }), "sourcePackage.encoding"],
  [inner({ encoding: "base64", sourceCode: "%%%" }), "sourcePackage.sourceCode"],
  [inner({ integrity: 1 }), "sourcePackage.integrity"],
  [inner({ signature: 1 }), "sourcePackage.signature"],
  [inner({ sourceCodeClassname: 1 }), "sourcePackage.sourceCodeClassname"],
  [{ sourcePackageURL: 1 }, "sourcePackageURL"],
  [hosted("https://g/stub.js"), "sourcePackageURL"],
  [hosted("//g/stub.js"), "sourcePackageURL"],
  [hosted("http://f/stub.js"), "sourcePackageURL"],
  [hosted("https://f:444/stub.js"), "sourcePackageURL"],
]) {
  test(`refused with the name of ${field}: ${JSON.stringify(changes).slice(0, 80)}`, () => {
    assert.throws(
      () => check({ ...good, ...changes }),
      (error) =>
        error.name === "LoadError" && error.code === code && error.message.startsWith(`${field}:`),
    );
  });
}

test("what is no object is refused", () => {
  for (const raw of [null, [], "x", 7, undefined])
    assert.throws(() => check(raw), /^LoadError: descriptor:/);
});

test("tolerant: language in any case, type in any case, a number as version, no optional fields", () => {
  const { cguid, objectName, sourcePackage } = good;
  const read = check({
    cguid,
    objectName,
    sourcePackage,
    type: "protostub",
    version: 2,
    language: "javascript",
  });
  assert.deepEqual([read.version, read.configuration, read.constraints], ["2", {}, {}]);
});

test("our own stub's constraints suit every platform it names", () => {
  const constraints = { browser: true, node: true, windowSandbox: true, ws: true, wss: true };
  check({ ...good, constraints });
  check({ ...good, constraints }, { platform: "browser" });
  check({ ...good, constraints: { windowSandbox: true } }, { platform: "browser" });
});

test("a Base64 source is decoded, and the domain's sub-domains are its own", () => {
  const read = check({
    ...good,
    ...inner({ encoding: "base64", sourceCode: btoa("export const a = 1;") }),
  });
  assert.equal(read.source, "export const a = 1;");
  check({ ...good, configuration: { url: "wss://f:8443/ws" } });
  check(
    { ...good, configuration: { url: "ws://127.0.0.1:8000/ws" } },
    { hosts: ["127.0.0.1:8000"] },
  );
});

test("digests: the strongest kind that is named counts", async () => {
  const [short, long] = [await digestOf("source"), await digestOf("source", "sha512")];
  await checkIntegrity("source", `sha256-${short}`);
  await checkIntegrity("source", `sha256-wrong sha512-${long}`);
  await assert.rejects(
    checkIntegrity("source", `sha256-${short} sha512-wrong`),
    ({ code }) => code === 502,
  );
  await assert.rejects(checkIntegrity("source", "md5-1234"), ({ code }) => code === 502);
});

test("SHA-256 as computed here is that of the platform", async () => {
  for (const text of [
    "",
    "abc",
    "é".repeat(1000),
    ...[55, 56, 63, 64, 65].map((length) => "x".repeat(length)),
  ]) {
    const bytes = new TextEncoder().encode(text);
    assert.equal(btoa(String.fromCharCode(...sha256(bytes))), await digestOf(text));
  }
});
