/** Conditions as rows and back: what is read and written again means the same. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Unreadable, group, read, write } from "../../policies/static/policies/condition.js";

const SAME = [
  {},
  { msgTo: { like: "*/x" } },
  { msgTo: { like: "*/x" }, actionType: { equals: ["read", "create"] } },
  { bytes: { moreThan: 1, lessThan: 9 } },
  {
    anyOf: [
      { msgTo: { like: "*/x" } },
      { time: { between: "22:00 06:00" }, bytes: { lessThan: 3 } },
    ],
  },
  { not: { srcUsername: { in: "@bad" } } },
  { not: [{ srcIDP: { exists: true } }, { direction: { equals: "in" } }] },
  {
    actionType: { equals: "read" },
    not: { anyOf: [{ bytes: { moreThan: 1 } }, { bytes: { lessThan: 0 } }] },
  },
  { allOf: [{ msgTo: { like: "a*" } }, { msgTo: { like: "*b" } }] },
];

for (const condition of SAME) {
  test(`is written as it was: ${JSON.stringify(condition)}`, () =>
    assert.deepEqual(write(read(condition)), condition));
}

const OTHERWISE = [
  [
    [{ a: { equals: 1 } }, { b: { equals: 2 } }],
    { anyOf: [{ a: { equals: 1 } }, { b: { equals: 2 } }] },
  ],
  [[], {}],
  [{ msgTo: { not: { equals: "x" } } }, { not: { msgTo: { equals: "x" } } }],
  [
    { msgTo: [{ like: "a*" }, { like: "b*" }] },
    { anyOf: [{ msgTo: { like: "a*" } }, { msgTo: { like: "b*" } }] },
  ],
  [{ anyOf: [{ a: { equals: 1 } }] }, { a: { equals: 1 } }],
];

for (const [condition, written] of OTHERWISE) {
  test(`is written in words: ${JSON.stringify(condition)}`, () =>
    assert.deepEqual(write(read(condition)), written));
}

const UNREADABLE = [
  1,
  "x",
  null,
  { a: 1 },
  { a: {} },
  { allOf: [] },
  { and: [{ a: { equals: 1 } }] },
  ["and", { a: { equals: 1 } }],
  { a: { equals: { b: 1 } } },
  { not: {} },
];

for (const condition of UNREADABLE) {
  test(`stays JSON: ${JSON.stringify(condition)}`, () =>
    assert.throws(() => read(condition), Unreadable));
}

test("a test that lacks its value is written with null, and never left out", () => {
  const tree = group("all", [{ attribute: "msgTo", operator: "equals", value: undefined }]);
  assert.deepEqual(write(tree), { msgTo: { equals: null } });
});

test("a group without members says nothing", () => {
  const tree = group("all", [{ attribute: "a", operator: "equals", value: 1 }, group("any", [])]);
  assert.deepEqual(write(tree), { a: { equals: 1 } });
});
