/** What counts as the size of a message that crosses the border of a sandbox. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { LIMITS, roughSize } from "../src/sandbox/limits.js";

const MILLION = 1_000_000;

test("the size of a message is about that of its JSON", () => {
  const message = {
    id: 7,
    type: "create",
    from: "hyperty://d/a",
    to: "hyperty://d/b",
    body: { list: [1, null, true, { text: "x".repeat(1000) }] },
  };
  const size = roughSize(message);
  const { length } = JSON.stringify(message);
  assert.ok(size > length * 0.8 && size < length * 1.3, `${size} for ${length}`);
});

for (const [what, value] of Object.entries({
  "a buffer": new ArrayBuffer(MILLION),
  "a small view of a large buffer": new Uint8Array(new ArrayBuffer(MILLION), 0, 1),
  "a map": new Map([["key", "x".repeat(MILLION)]]),
  "a set": new Set(["x".repeat(MILLION)]),
})) {
  test(`${what} counts with what it holds`, () => {
    const size = roughSize({ body: { value } });
    assert.ok(size >= MILLION && size < 1.1 * MILLION, `${size}`);
  });
}

test("what lies deeper than any message is counted too", () => {
  let value = "x".repeat(MILLION);
  for (let depth = 0; depth < 10_000; depth += 1) value = [value];
  assert.ok(roughSize(value) >= MILLION);
});

test("what goes round, or is larger than anything may be, is found out and not followed for ever", () => {
  let looked = 0;
  const look = { enumerable: true, get: () => ((looked += 1), round) };
  const round = Object.defineProperties({}, { a: look, b: look });
  const huge = new Uint8Array(100 * MILLION);
  const rounds = new Set();
  rounds.add(rounds).add([rounds]);
  for (const value of [round, huge, rounds])
    assert.ok(roughSize({ body: value }) > LIMITS.rateBytes * 8);
  assert.ok(looked > 0 && looked < 10_000_000, `${looked} looks`);
});
