/** runtime.qos: reservations that are kept, told of, given back; and what is done without a broker. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { settled } from "./fake-clock.mjs";
import { R, endWorld, newWorld, until } from "./world.mjs";

const HOME = "domain://qos.d";

let runtime, bus, clock, catalogues, world, errors;
let seen, refuses, changes, number, isSilent;

beforeEach(async () => {
  ({ runtime, bus, clock, catalogues, world, errors } = newWorld());
  [seen, refuses, changes, number, isSilent] = [[], {}, {}, 0, false];
  world.sent = (stub, { id, type, from, to, body }) => {
    if (!to.startsWith("domain://qos.")) return;
    seen.push([type, to, body]);
    if (!isSilent) stub.bring({ id, type: "response", from: to, to: from, body: answerOf(type) });
  };
  await catalogues.add("d");
  await runtime.logIn();
});
afterEach(() => endWorld({ runtime, clock }));

function answerOf(type) {
  if (refuses[type]) return { code: refuses[type][0], desc: refuses[type][1] };
  if (type !== "create" && type !== "update") return { code: 200, value: { classes: [] } };
  number += 1;
  const server = { urls: ["turn:t"], username: "u", credential: `secret ${number}` };
  const value = {
    reservationId: "r1",
    class: "video",
    bitrate: 2_500_000,
    seconds: 1000,
    expires: "2026-11-22T17:00:00+00:00",
  };
  return {
    code: 200,
    value: {
      ...value,
      iceServers: [server],
      iceTransportPolicy: "relay",
      state: "held",
      ...changes,
    },
  };
}

const times = (type) => seen.filter(([each]) => each === type).length;
const stubOf = (domain) =>
  world.started.findLast(({ url }) => url.startsWith(`runtime://${domain}/`));

function tell(body, { from = HOME, domain = "d" } = {}) {
  stubOf(domain).bring({
    id: 9,
    type: "update",
    from,
    to: R,
    body: { resource: "/reservations/r1", attribute: "status", ...body },
  });
}

async function turned(milliseconds) {
  await clock.turn(milliseconds);
  await settled();
}

test("a reservation from its inquiry to its release", async () => {
  await runtime.qos.inquire({ mediaTypes: ["video"], cspId: "csp1" });
  const call = await runtime.qos.reserve({
    mediaTypes: ["audio", "video"],
    seconds: 600,
    sessionId: "comm://d/1",
  });
  await call.renew();
  const ends = [];
  call.onEnded((end) => ends.push(end));
  await call.release();
  await call.release();
  await settled();
  assert.deepEqual(Object.keys(call.configuration), ["iceServers", "iceTransportPolicy"]);
  assert.equal(call.configuration.iceServers[0].credential, "secret 2");
  assert.deepEqual(ends, [{ status: "released", reason: "released" }]);
  const path = { resource: "/reservations/r1" };
  const flows = [{ mediaType: "audio" }, { mediaType: "video" }];
  assert.deepEqual(JSON.parse(JSON.stringify(seen)), [
    ["read", HOME, { resource: "/resources", criteria: { mediaTypes: ["video"], cspId: "csp1" } }],
    [
      "create",
      HOME,
      { resource: "/reservations", value: { seconds: 600, sessionId: "comm://d/1", flows } },
    ],
    ["update", HOME, { ...path, value: { seconds: 600 } }],
    ["delete", HOME, path],
  ]);
  assert.equal(bus.listenersOf(R).length, 0);
});

test("it is renewed for as long as it is wanted, and not longer", async () => {
  const call = await runtime.qos.reserve({ mediaTypes: ["video"] });
  for (let done = 1; done <= 3; done += 1) {
    await turned(800_000);
    await until(() => times("update") === done, "a renewal");
    await settled();
  }
  await call.release();
  await turned(800_000);
  assert.equal(times("update"), 3);
});

test("one that is not to be kept is not renewed", async () => {
  await runtime.qos.reserve({ mediaTypes: ["video"], keep: false });
  await turned(900_000);
  assert.equal(times("update"), 0);
});

test("a renewal that fails is tried again until the end", async () => {
  const call = await runtime.qos.reserve({ class: "video" });
  refuses.update = [503, "not now"];
  for (let step = 0; step < 40 && !call.ended; step += 1) await turned(60_000);
  assert.deepEqual(call.ended, { status: "ended", reason: "expired" });
  assert.ok(times("update") > 2, "it was tried again");
});

test("one that the broker does not know any more has ended", async () => {
  const call = await runtime.qos.reserve({ class: "video" });
  refuses.update = [404, "The reservation r1 has ended."];
  await turned(800_000);
  await until(() => call.ended, "the end");
  assert.deepEqual(call.ended, { status: "ended", reason: "The reservation r1 has ended." });
});

test("the broker tells of the end, and nobody else does", async () => {
  const call = await runtime.qos.reserve({ class: "video" });
  const ends = [];
  call.onEnded((end) => ends.push(end));
  tell({ value: "exceeded" }, { from: "domain://qos.f" });
  tell({ value: "exceeded" }, { from: "hyperty://f/x" });
  await settled();
  assert.deepEqual(ends, []);
  tell({ value: "ended", reason: "expired" });
  tell({ value: "lost" });
  await settled();
  call.onEnded((end) => ends.push(end));
  assert.deepEqual(ends, [
    { status: "ended", reason: "expired" },
    { status: "ended", reason: "expired" },
  ]);
  assert.equal(bus.listenersOf(R).length, 0);
});

test("another request to the runtime itself is answered 404, as without a reservation", async () => {
  const call = await runtime.qos.reserve({ class: "video" });
  stubOf("d").bring({ id: 7, type: "execute", from: "hyperty://d/other", to: R, body: {} });
  await until(
    () => stubOf("d").sent.some(({ id, type }) => id === 7 && type === "response"),
    "the answer",
  );
  assert.equal(
    stubOf("d").sent.find(({ id, type }) => id === 7 && type === "response").body.code,
    404,
  );
  await call.release();
});

test("a refusal says the broker's code and words, and no credential", async () => {
  refuses.create = [503, "No TURN server has room."];
  await assert.rejects(runtime.qos.reserve({ class: "video" }), {
    code: 503,
    message: "No TURN server has room.",
  });
  assert.equal(bus.listenersOf(R).length, 0);
});

test("without a broker connections get the fallback, and nothing fails", async () => {
  const stun = { urls: ["stun:s"] };
  const relayed = await runtime.qos.iceServers({}, [stun]);
  assert.equal(relayed.configuration.iceTransportPolicy, "all");
  assert.deepEqual(relayed.configuration.iceServers[1], stun);
  assert.deepEqual(seen[0][2].value.flows, [{ mediaType: "data" }]);
  await relayed.release();
  refuses.create = [503, "no QoS broker"];
  const direct = await runtime.qos.iceServers({ mediaTypes: ["audio"] }, [stun]);
  assert.deepEqual(direct.configuration, { iceServers: [stun], iceTransportPolicy: "all" });
  assert.equal(direct.error.code, 503);
  assert.equal(direct.reservation, null);
  await direct.release();
  assert.equal(bus.counters["qos.none"], 1);
});

test("closing releases, and waits 3 s for a broker that is silent", async () => {
  const call = await runtime.qos.reserve({ class: "video" });
  isSilent = true;
  const closing = runtime.close();
  await settled();
  await turned(3_000);
  await until(() => call.ended, "the end");
  assert.deepEqual(call.ended, { status: "ended", reason: "closed" });
  assert.equal(times("delete"), 1);
  await clock.turn(10_000);
  await closing;
});

test("what a listener to the end throws goes to the error hook", async () => {
  const call = await runtime.qos.reserve({ class: "video" });
  call.onEnded(() => {
    throw new Error("of the application");
  });
  await call.release();
  assert.deepEqual(
    errors.map(({ reason }) => reason),
    ["listener.failed"],
  );
});
