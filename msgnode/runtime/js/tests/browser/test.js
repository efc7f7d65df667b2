/** What these tests need of `node:test`, for a browser's page. */

const tests = [];
let before = [];
let after = [];

export function test(name, ...rest) {
  tests.push({
    name,
    run: rest.at(-1),
    before,
    after,
    isSkipped: rest.length > 1 && Boolean(rest[0].skip),
  });
}

export const beforeEach = (call) => void (before = [...before, call]);
export const afterEach = (call) => void (after = [...after, call]);
export default test;

/** Hooks belong to the file that is loaded next. */
export function newFile() {
  before = [];
  after = [];
}

/** Run the tests whose names match; resolves with {name, error?} of each. */
export async function run(pattern = "") {
  const results = [];
  for (const { name, run: call, before: first, after: last, isSkipped } of tests) {
    if (isSkipped || !new RegExp(pattern).test(name)) continue;
    try {
      for (const hook of first) await hook();
      await call({ name });
      results.push({ name });
    } catch (error) {
      results.push({ name, error: `${error?.stack ?? error}` });
    }
    for (const hook of last) await hook();
  }
  return results;
}
