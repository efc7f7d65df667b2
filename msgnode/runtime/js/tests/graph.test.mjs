/** The Graph Connector; the numbers of cases are those of docs/reference/registry.md. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Contacts } from "../src/graph/contacts.js";
import { GraphConnector } from "../src/graph/graph-connector.js";
import { derive } from "../src/graph/guids.js";
import { keysOf, masterKey, newWords, publicText } from "../src/graph/keys.js";
import { personOf, signedRecord, newRecord } from "../src/graph/persons.js";
import { digest, read, sign } from "../src/graph/signed.js";
import { settled } from "./fake-clock.mjs";
import { R, endWorld, newWorld } from "./world.mjs";

const VECTOR = globalThis.process
  ? JSON.parse(
      (await import("node:fs")).readFileSync(new URL("words.json", import.meta.url), "utf8"),
    )
  : await (await fetch("/tests/words.json")).json();
const WORDS = VECTOR.words;
const ALICE = "user://a.example/alice";
const SIGNED =
  "eyJhbGciOiJFUzI1NiJ9.eyJkYXRhIjoiZXlKelkyaGxiV0ZXWlhKemFXOXVJam94TENKbmRXbGtJam9pWlVwcGRIRm9jVEkzUzNNMlRqWm1SMmxEWjNsUVJVVnFVRXBSYnpaMFZHRmliM0p4TURBMVVEZHpSU0lzSW5OaGJIUWlPaUphTW5relZVSnFkSHBRUlZCNmJUZ3pZbmxGYXpSRGQzbHJMMjh2TmxCc1ZIZ3hUMGRIV1hoNFVsSlJQU0lzSW5WelpYSkpSSE1pT2x0N0luVnBaQ0k2SW5WelpYSTZMeTlsZUdGdGNHeGxMbU52YlM5aGJHbGpaU0lzSW1SdmJXRnBiaUk2SW1WNFlXMXdiR1V1WTI5dEluMWRMQ0pzWVhOMFZYQmtZWFJsSWpvaU1qQXlOQzB3TVMwd01WUXdNRG93TURvd01Gb2lMQ0owYVcxbGIzVjBJam9pTWpBek5DMHdNUzB3TVZRd01Eb3dNRG93TUZvaUxDSndkV0pzYVdOTFpYa2lPaUl0TFMwdExVSkZSMGxPSUZCVlFreEpReUJMUlZrdExTMHRMVTFHV1hkRlFWbElTMjlhU1hwcU1FTkJVVmxHU3pSRlJVRkJiMFJSWjBGRmFrUjVkR1phZWs4eGNVaDBibFZsSzJGMU9YZHFLME5MUWxrMVF6WjFkMWxMYVhJNVdGcHNOVnBLUzFkelExWldaSFpqWjNnNFZ5OXJLMWhTYVZsMVpFOHdTWGN3WkhOalIzWnJRVFp2V1dOalozUXdhMEU5UFMwdExTMHRSVTVFSUZCVlFreEpReUJMUlZrdExTMHRMU0lzSW1GamRHbDJaU0k2TVN3aWNtVjJiMnRsWkNJNk1Dd2laR1ZtWVhWc2RITWlPbnNpZG05cFkyVWlPaUpoSWl3aVkyaGhkQ0k2SW1JaUxDSjJhV1JsYnlJNkltTWlmU3dpYkdWbllXTjVTVVJ6SWpwYlhYMCJ9";
const SIGNATURES = [
  "jV7a1i7d6P9Qlm877nEXD9l-mW8ANi-jZeXmUOBVNvyxdEU6ya5xvGkMl3g-hcP873mJj60zxgE9wll32SgPuQ", // r and s
  "MEYCIQCNXtrWLt3o_1CWbzvucRcP2X6ZbwA2L6Nl5eZQ4FU2_AIhALF0RTrJrnG8aQyXeD6Fw_zveYmPrTPGAT3CWXfZKA-5", // DER
];

let runtime, world, clock, errors, catalogues;
let stored, entries, asked, says, beforePut;

beforeEach(async () => {
  const routing = Object.fromEntries(
    Array.from({ length: 100 }, (_, n) => [`d${n}.example`, "node"]),
  );
  ({ runtime, world, clock, errors, catalogues } = newWorld({
    routing: { ...routing, "a.example": "node", "b.example": "node" },
  }));
  [stored, entries, asked, says, beforePut] = [new Map(), {}, [], (_, said) => said, []];
  let turn = Promise.resolve();
  world.sent = (stub, message) => {
    const { id, from, to } = message;
    asked.push(message);
    turn = turn.then(async () => {
      const body = says(message, await answerOf(message));
      if (body) stub.bring({ id, type: "response", from: to, to: from, body });
    });
  };
  await catalogues.add("d");
  await runtime.logIn();
  asked.length = 0;
});
afterEach(() => endWorld({ runtime, clock }));

/** A global registry with the rules of ours, and domain registries. */
async function answerOf({ type, to, body }) {
  if (to.startsWith("domain://registry.")) {
    const value = entries[to.slice("domain://registry.".length)];
    return value ? { code: 200, value } : { code: 404, desc: "Not Found" };
  }
  const there = stored.get(body.guid);
  if (type === "read")
    return there
      ? { Code: 200, code: 200, Value: there, value: there }
      : { Code: 404, code: 404, Description: "GUID not found." };
  beforePut.shift()?.();
  const now = stored.get(body.guid);
  if (body.previous !== undefined && body.previous !== (now ? await digest(now) : "")) {
    return { Code: 409, code: 409, Description: "The record has been changed in the meantime." };
  }
  const { guid, lastUpdate } = await read(body.jwt);
  assert.equal(guid, body.resource);
  assert.ok(!now || lastUpdate > (await read(now)).lastUpdate);
  stored.set(guid, body.jwt);
  return { Code: 200, code: 200, Description: "OK" };
}

const device = (storage) =>
  new GraphConnector(
    runtime.bus,
    R,
    new Contacts({ key: "c", storage, onFailure: (...why) => errors.push(why) }),
  );

const keyOf = (number) => new Uint8Array(32).fill(number);
const guidOf = async (number) => derive(await publicText(keyOf(number)), "s");

async function jwtOf(number, changes = {}) {
  const privateKey = keyOf(number);
  const record = newRecord(
    { publicKey: await publicText(privateKey), salt: "s" },
    await guidOf(number),
  );
  return sign(
    { ...record, lastUpdate: "2026-01-01T00:00:00Z", timeout: "2090-01-01T00:00:00Z", ...changes },
    privateKey,
  );
}

function keeper() {
  const kept = {};
  return {
    kept,
    getItem: (key) => kept[key] ?? null,
    setItem: (key, text) => void (kept[key] = text),
  };
}

test("case 31: the words give the key, the salt and both GUIDs", async () => {
  const found = await keysOf(WORDS);
  const hex = [...found.privateKey].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  assert.deepEqual(
    { private: hex, publicKey: found.publicKey, salt: found.salt },
    { private: VECTOR.private, publicKey: VECTOR.publicKey, salt: VECTOR.salt },
  );
  assert.deepEqual([found.guid, found.legacyGuid], [VECTOR.guid, VECTOR.legacy]);
  assert.equal((await keysOf(`  ${WORDS.toUpperCase().replaceAll(" ", "\n")} `)).guid, VECTOR.guid);
  const one = await masterKey(Uint8Array.from({ length: 16 }, (_, at) => at)); // test vector 1 of BIP-32
  assert.deepEqual([...one.slice(0, 4)], [0xe8, 0xf3, 0x2e, 0x72]);
  assert.notEqual(await newWords(), await newWords());
});

test("words that are none are refused and not repeated", async () => {
  const bad = {
    "": "0 words",
    [`${WORDS} zebra`]: "17 words",
    [WORDS.replace("address", "adress")]: "Word 15",
    [WORDS.replace("address", "zoo")]: "belong together",
  };
  for (const [words, said] of Object.entries(bad)) {
    const error = await keysOf(words).catch((error) => error);
    assert.equal(error.code, 400);
    assert.ok(error.message.includes(said) && !error.message.includes("abandon"), error.message);
  }
});

test("case 32: records in both encodings verify, with another letter none does", async () => {
  for (const signature of SIGNATURES) {
    const jwt = `${SIGNED}.${signature}`;
    const { person } = await personOf(jwt);
    assert.equal(person.guid, "eJitqhq27Ks6N6fGiCgyPEEjPJQo6tTaborq005P7sE");
    assert.deepEqual(person.userIds, [{ uid: "user://example.com/alice", domain: "example.com" }]);
    for (let at = 3; at < jwt.length; at += 211) {
      const other = jwt.slice(0, at) + (jwt[at] === "A" ? "B" : "A") + jwt.slice(at + 1);
      await assert.rejects(personOf(other), { code: 502 });
    }
  }
  assert.equal(
    atob((await jwtOf(5)).split(".")[2].replaceAll("-", "+").replaceAll("_", "/")).charCodeAt(0),
    0x30,
    "DER is made",
  );
});

test("case 33: what is published at one device is there at another", async () => {
  const alice = await runtime.graph;
  const words = await alice.create();
  alice.addUserId(ALICE);
  alice.addUserId(ALICE);
  alice.addUserId("user://idp.example/alice", "B.example");
  alice.addLegacyId({ type: "phone", category: "home", id: "+351" });
  alice.setDefaults({ voice: "a" });
  const published = await alice.publish();
  assert.deepEqual(
    published.userIds.map(({ domain }) => domain),
    ["a.example", "b.example"],
  );
  const { from, to } = asked.at(-1);
  assert.deepEqual([from, to], [`${R}/graph-connector`, "global://registry/"]);

  const other = device();
  assert.equal(await other.use(words), true);
  assert.deepEqual(other.person, published);
  other.removeUserId(ALICE);
  other.removeLegacyId("+351");
  other.setActive(false);
  const left = await other.publish();
  assert.deepEqual(
    [left.userIds.length, left.legacyIds, left.isActive, left.defaults.voice],
    [1, [], false, "a"],
  );
  assert.ok(left.lastUpdate > published.lastUpdate);
  assert.deepEqual(await alice.lookup(`user-guid://${alice.guid}`), left);
});

test("case 31: words of older runtimes find their record under its older GUID", async () => {
  const keys = await keysOf(WORDS);
  const old = { ...newRecord(keys, keys.legacyGuid), userIDs: [{ uID: ALICE }] };
  stored.set(keys.legacyGuid, await signedRecord(old, keys, 0, Date.now() - 1e6));
  const alice = device();
  assert.equal(await alice.use(WORDS), true);
  alice.setDefaults({ chat: "b" });
  await alice.publish();
  assert.deepEqual((await read(stored.get(VECTOR.legacy))).record.userIDs, [{ uID: ALICE }]);
  assert.ok(!stored.has(VECTOR.guid));
});

test("devices that publish at once lose nothing", async () => {
  const devices = [device(), device(), device()];
  for (const each of devices) assert.equal(await each.use(WORDS), false);
  devices.forEach((each, number) => each.addUserId(`user://d${number}.example/alice`));
  await Promise.all([...devices.map((each) => each.publish()), devices[0].publish()]);
  const named = (await read(stored.get(VECTOR.guid))).record.userIDs.map(({ domain }) => domain);
  assert.deepEqual(named.sort(), ["d0.example", "d1.example", "d2.example"]);
});

test("a record that others never leave alone ends the tries, and the changes are kept", async () => {
  const alice = device();
  await alice.use(WORDS);
  await alice.publish();
  const keys = await keysOf(WORDS);
  const others = [];
  for (let after = Date.now() + 1; others.length < 9; after += 5)
    others.push(await signedRecord(newRecord(keys, VECTOR.guid), keys, after, after));
  alice.addUserId(ALICE);
  beforePut = others.map((jwt) => () => stored.set(VECTOR.guid, jwt));
  await assert.rejects(alice.publish(), { code: 409 });
  assert.equal(beforePut.length, 5);
  beforePut = [];
  assert.equal((await alice.publish()).userIds.length, 1);
});

test("case 39: a revoked GUID stays revoked", async () => {
  const alice = device();
  const words = await alice.create();
  await alice.publish();
  await alice.revoke();
  assert.equal(alice.person.isRevoked, true);
  await assert.rejects(alice.publish(), { code: 410 });
  await assert.rejects(alice.lookup(alice.guid), { code: 410 });
  assert.equal(await alice.use(words), false);
});

test("case 40: a record that has timed out is renewed by its owner", async () => {
  const alice = device();
  await alice.use(WORDS);
  alice.addUserId(ALICE);
  await alice.publish();
  stored.clear();
  says = ({ type }, said) =>
    type === "read" ? { Code: 410, code: 410, Description: "timed out" } : said;
  assert.equal((await alice.publish()).userIds.length, 1);
  assert.equal(await alice.use(WORDS), false);
});

test("what no registry takes is not sent, what needs a GUID says so, and bad values are refused", async () => {
  await assert.rejects(device().publish(), { code: 400 });
  const alice = device();
  await alice.create();
  for (const bad of ["", "alice", "user://", "user://a.example/\n"])
    assert.throws(() => alice.addUserId(bad), { code: 400 });
  assert.throws(() => alice.setDefaults({ fax: "1" }), { code: 400 });
  alice.addLegacyId({ type: "note", category: "x", id: "1", description: "x".repeat(40_000) });
  await assert.rejects(alice.publish(), { code: 413 });
  assert.deepEqual(
    asked.map(({ type }) => type),
    ["read"],
  );
});

test("cases 34 and 42: what is no proof is refused", async () => {
  const guid = await guidOf(5);
  const lies = [
    [{ Code: 404, Value: "" }, 404],
    [{ code: 200, value: null }, 404],
    [{ Code: 200, Value: "" }, 404],
    [{ Code: 200, Value: 5 }, 502],
    [{ Code: 200, Value: "x.y.z" }, 502],
    [{ Code: 200, Value: "x".repeat(70_000) }, 502],
    [{ Code: 200, Value: await jwtOf(6) }, 502],
    [{ Code: 200, Value: await jwtOf(5, { revoked: 1 }) }, 410],
    [{ Code: 200, Value: await jwtOf(5, { timeout: "2026-02-01T00:00:00Z" }) }, 410],
    [{ Code: 200, Value: await jwtOf(5, { userIDs: Array(101).fill("x") }) }, 502],
    [{ Code: 200, Value: await jwtOf(5, { userIDs: [{}] }) }, 502],
    [{ Code: 200, Value: await jwtOf(5, { defaults: null }) }, 502],
    [{ Code: 200, Value: await jwtOf(5, { lastUpdate: "yesterday" }) }, 502],
    [{ Code: 503, Description: "later" }, 503],
    [{}, 500],
  ];
  for (const [said, code] of lies) {
    says = () => said;
    await assert.rejects(device().lookup(guid), { code });
  }
  for (const bad of ["", "x".repeat(44), `../${"x".repeat(40)}`])
    await assert.rejects(device().lookup(bad), { code: 400 });
});

test("a registry that is silent is given up after 15 s", async () => {
  says = () => null;
  const asking = device()
    .lookup(await guidOf(5))
    .catch((error) => error);
  for (let seconds = 0; seconds < 16; seconds += 1) {
    await clock.turn(1_000);
    await settled();
  }
  assert.equal((await asking).code, 408);
});

test("case 38: an older record is refused after a newer one, a contact's after a restart too", async () => {
  const [storage, guid] = [keeper(), await guidOf(5)];
  const alice = device(storage);
  alice.contacts.add(guid, { firstName: "Bob" });
  stored.set(guid, await jwtOf(5, { lastUpdate: "2026-03-01T00:00:00Z" }));
  await alice.lookup(guid);
  stored.set(guid, await jwtOf(5, { lastUpdate: "2026-02-01T00:00:00Z" }));
  for (const each of [alice, device(storage)])
    await assert.rejects(each.lookup(guid), { code: 409 });
});

test("words that cannot be asked about leave one who one was", async () => {
  const alice = device();
  await alice.create();
  const before = alice.guid;
  says = () => ({ Code: 503, Description: "later" });
  await assert.rejects(alice.use(WORDS), { code: 503 });
  assert.equal(alice.guid, before);
});

test("a person's hyperties are found in all domains he names; one that fails or lies fails for itself", async () => {
  const guid = await guidOf(5);
  const ids = [
    ALICE,
    { uid: "b", domain: "b.example" },
    ALICE,
    "x@d1.example",
    "x@d2.example",
    { uid: "x", domain: "a/b" },
  ];
  stored.set(guid, await jwtOf(5, { userIDs: ids }));
  entries["a.example"] = {
    x: { hypertyID: "hyperty://a.example/1", guid: `user-guid://${guid}` },
    y: 5,
    z: [5],
  };
  entries["b.example"] = [{ hypertyID: "hyperty://b.example/2", confirmed: true }];
  says = ({ to }, said) => {
    if (to === "domain://registry.d1.example") return { code: 504, desc: "frozen" };
    return to === "domain://registry.d2.example" ? { code: 200, value: "no map" } : said;
  };
  const found = await device().hyperties(guid, { resources: ["chat"] });
  assert.deepEqual(
    found.map(({ code }) => code),
    [200, 200, 504, 200, 400],
  );
  assert.deepEqual(
    found.map(({ hyperties }) => hyperties.map(({ confirmed }) => confirmed)),
    [[true], [false], [], [], []],
  );
  assert.equal(found[2].text, "frozen");
  assert.deepEqual(asked.find(({ to }) => to.startsWith("domain")).body.criteria, {
    resources: ["chat"],
  });
});

test("a record of a hundred domains does not have a hundred asked", async () => {
  const guid = await guidOf(5);
  stored.set(
    guid,
    await jwtOf(5, { userIDs: Array.from({ length: 100 }, (_, n) => `x@d${n}.example`) }),
  );
  const codes = (await device().hyperties(guid)).map(({ code }) => code);
  assert.deepEqual(
    [codes.filter((code) => code === 404).length, codes.filter((code) => code === 429).length],
    [32, 68],
  );
  assert.equal(asked.length, 33);
});

test("contacts are kept, found, changed and removed; a GUID is one once", async () => {
  const storage = keeper();
  const book = device(storage).contacts;
  const [bob, carol] = [await guidOf(5), await guidOf(6)];
  book.add(`user-guid://${bob}`, { firstName: "Bob", lastName: "Brown", groups: ["work"] });
  book.add(carol, { firstName: "Carol" });
  book.edit(bob, { firstName: "Robert", groups: ["home"] });
  const again = device(storage).contacts;
  assert.deepEqual(
    [...again].map(({ firstName }) => firstName),
    ["Robert", "Carol"],
  );
  assert.deepEqual(
    [again.find("bro").length, again.find("HOME").length, again.find("obert").length],
    [1, 1, 0],
  );
  assert.throws(() => again.add(bob), { code: 409 });
  for (const bad of [
    { firstName: "x".repeat(201) },
    { lastName: 5 },
    { groups: Array(101).fill("x") },
  ]) {
    assert.throws(() => again.edit(bob, bad), { code: 400 });
  }
  assert.throws(() => again.add("short"), { code: 400 });
  assert.deepEqual([again.remove(bob), again.remove(bob)], [true, false]);
  assert.throws(() => again.edit(bob, {}), { code: 404 });
  assert.equal(device(storage).contacts.size, 1);
  assert.throws(() => new Contacts({ key: "k", onFailure: () => {}, most: 0 }).add(bob), {
    code: 413,
  });
  for (const spoilt of ["{", "5", '[{"guid": 5}]']) {
    storage.kept.c = spoilt;
    assert.equal(device(storage).contacts.size, 0);
    assert.equal(errors.pop()[0], "c cannot be read");
  }
});
