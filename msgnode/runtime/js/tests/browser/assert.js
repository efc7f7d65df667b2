/** What these tests need of `node:assert/strict`, for a browser's page. */

function fail(text, message) {
  throw new Error(message ? `${message}: ${text}` : text);
}

const shown = (value) =>
  JSON.stringify(value, (_, each) => (each === undefined ? "(undefined)" : each));

function isEqual(left, right) {
  if (Object.is(left, right)) return true;
  if (typeof left !== "object" || typeof right !== "object" || !left || !right) return false;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  const keys = Object.keys(left);
  if (keys.length !== Object.keys(right).length) return false;
  return keys.every((key) => Object.hasOwn(right, key) && isEqual(left[key], right[key]));
}

function matches(error, expected) {
  if (expected === undefined) return true;
  if (expected instanceof RegExp) return expected.test(String(error));
  if (typeof expected === "object")
    return Object.entries(expected).every(([key, value]) =>
      value instanceof RegExp ? value.test(error[key]) : isEqual(error[key], value),
    );
  if (expected.prototype !== undefined && error instanceof expected) return true;
  return expected.prototype instanceof Error ? false : Boolean(expected(error));
}

function assert(value, message) {
  if (!value) fail(`${shown(value)} is not true`, message);
}

export default Object.assign(assert, {
  ok: assert,
  equal: (left, right, message) =>
    Object.is(left, right) || fail(`${shown(left)} is not ${shown(right)}`, message),
  notEqual: (left, right, message) =>
    Object.is(left, right) && fail(`both are ${shown(left)}`, message),
  deepEqual: (left, right, message) =>
    isEqual(left, right) || fail(`${shown(left)} is not ${shown(right)}`, message),
  match: (text, pattern, message) =>
    pattern.test(text) || fail(`${shown(text)} does not match ${pattern}`, message),
  throws: (call, expected) => {
    try {
      call();
    } catch (error) {
      return matches(error, expected) || fail(`it threw ${error}`);
    }
    return fail("it did not throw");
  },
  rejects: async (promise, expected) => {
    try {
      await (typeof promise === "function" ? promise() : promise);
    } catch (error) {
      return matches(error, expected) || fail(`it was rejected with ${error}`);
    }
    return fail("it was not rejected");
  },
});
