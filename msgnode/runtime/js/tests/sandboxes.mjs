/** What sandboxes of Node.js and of a browser have in common: a runtime, and the cases that hold in both. */

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { AnswerError } from "../src/bus.js";
import * as hostile from "./hostile.mjs";
import { until } from "./world.mjs";

/** The runtime of the present test. */
export let runtime;

afterEach(() => runtime?.close());

export function use(made) {
  runtime = made;
  runtime.bus.onError(() => {});
}

export const create = (to, body = {}) => ({ type: "create", from: "hyperty://d/a", to, body });
export const answer = (message) =>
  runtime.bus.request(message).catch((error) => {
    if (!(error instanceof AnswerError)) throw error;
    return error.body;
  });
export const entry = (domain) => runtime.stubs.get(domain);
export const heard = (address) => {
  const messages = [];
  runtime.bus.addListener(address, (message) => messages.push(message));
  return messages;
};
export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const forged = () =>
  Object.entries(runtime.counters)
    .filter(([name]) => /stub\.forged/.test(name))
    .reduce((sum, [, n]) => sum + n, 0);

/** Calls while somebody talks with a good stub in a sandbox of its own, which stays quick. */
export async function beside(begin, harmful, options, call) {
  begin({ f: harmful, g: hostile.GOOD }, options);
  assert.equal((await answer(create("hyperty://g/x"))).code, 200);
  const latencies = [];
  let isOver = false;
  const talk = (async () => {
    while (!isOver || latencies.length < 50) {
      const began = performance.now();
      assert.equal((await answer(create("hyperty://g/x", { n: latencies.length }))).code, 200);
      latencies.push(performance.now() - began);
      await pause(5);
    }
  })();
  await call();
  isOver = true;
  await talk;
  latencies.sort((one, other) => one - other);
  const [median, p99] = [0.5, 0.99].map((part) => latencies[Math.floor(latencies.length * part)]);
  console.log(`# bystander: median ${median.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`);
  assert.ok(median < 100, `the bystander's median is ${median} ms`);
  assert.ok(p99 < 1000, `the bystander's p99 is ${p99} ms`);
}

/** A stub that floods with a body of half a MiB gets no more through than its share. */
export async function flood(begin, body) {
  const large = hostile.FLOOD.replace('"x".repeat(100)', body).replace("n < 2000", "n < 4");
  await beside(begin, large, { times: { leastRestart: 60_000 } }, async () => {
    const flooded = heard("hyperty://d/flooded");
    runtime.bus.postMessage(create("hyperty://f/x"));
    await until(() => flooded.length > 8, "the first of the flood", 30_000);
    const before = flooded.length;
    await pause(2000);
    const passed = flooded.length - before;
    assert.ok(passed < 50, `${passed} of half a MiB got through in 2 s`);
  });
}

/**
 * The cases that hold in both.
 *
 * @param begin has a runtime with stubs, by domain, and options
 * @param where what the sandbox is
 */
export function cases(begin, where) {
  test(`a stub in ${where} takes messages and answers them`, async () => {
    begin({ g: hostile.GOOD });
    const { value } = await runtime.bus.request(
      create("hyperty://g/x", { text: "grüße 🎈", n: 1.5 }),
    );
    assert.deepEqual(value, { text: "grüße 🎈", n: 1.5 });
  });

  test("R40 a stub that loops at its start is ended at the limit; others go on", async () => {
    await beside(begin, hostile.LOOP_AT_START, { limits: { startTime: 2000 } }, async () => {
      assert.equal((await answer(create("hyperty://f/x"))).code, 504);
      assert.equal(entry("f").status, "deployment-failed");
    });
  });

  test("R40 a stub that loops later is ended when it has not read its port", async () => {
    await beside(
      begin,
      hostile.LOOP,
      { limits: { pingEvery: 300, readTime: 1500 }, times: { leastRestart: 60_000 } },
      async () => {
        const { code, desc } = await answer(create("hyperty://f/x"));
        assert.equal(code, 503);
        assert.match(desc, /does not read its port/);
        assert.equal(entry("f").status, "disconnected");
      },
    );
  });

  test("R43 a stub that forges `from` is refused, counted and not delivered", async () => {
    await beside(begin, hostile.FORGER, {}, async () => {
      const reports = heard("hyperty://d/report");
      heard("hyperty://d/victim");
      runtime.bus.postMessage(create("hyperty://f/x"));
      await until(() => forged() >= 2, "the refusals", 30_000);
      assert.deepEqual(reports, []);
    });
  });

  test("R47 a stub that reads nothing is ended at the limit of its queue; senders get 503", async () => {
    begin(
      { f: hostile.LOOP },
      { limits: { readTime: 2000, pingEvery: 500 }, times: { leastRestart: 60_000 } },
    );
    const codes = [];
    const text = "x".repeat(100_000);
    for (let n = 0; n < 200; n += 1) {
      runtime.bus.postMessage(create("hyperty://f/x", { text }), ({ body }) =>
        codes.push(body.code),
      );
      if (n === 0)
        await until(
          () => entry("f")?.status === "created" && !entry("f").isLoading,
          "the stub",
          30_000,
        );
      await pause(2);
    }
    await until(() => codes.filter((code) => code === 503).length > 100, "the refusals", 30_000);
    await until(() => entry("f").status === "disconnected", "its end", 30_000);
  });

  test("a stub that floods is read no faster than its rate", async () => {
    await beside(begin, hostile.FLOOD, {}, async () => {
      const flooded = heard("hyperty://d/flooded");
      runtime.bus.postMessage(create("hyperty://f/x"));
      await until(() => flooded.length > 500, "the first of the flood", 30_000);
      const [before, began] = [flooded.length, performance.now()];
      await pause(2000);
      const rate = ((flooded.length - before) / (performance.now() - began)) * 1000;
      assert.ok(rate < 3000, `${rate} messages a second got through`);
    });
  });

  test("a stub that floods with large messages is read no faster than its share", () =>
    flood(begin, '"x".repeat(500_000)'));
}
