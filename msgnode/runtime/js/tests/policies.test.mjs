/** Local policies: the numbered cases of the language, and the handler on a bus. */

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { MessageBus } from "../src/messagebus.js";
import {
  Facts,
  PolicyEngine,
  PolicyError,
  policyHandler,
  rewritten,
} from "../src/policies/index.js";
import { settled } from "./fake-clock.mjs";

const SHARED = "../../../../tests/policies/cases.jsonl"; // the cases of the node's own engine
const isNode = typeof process === "object";
const text = isNode
  ? (await import("node:fs")).readFileSync(new URL(SHARED, import.meta.url), "utf8")
  : await (await fetch("/cases.jsonl")).text();
const CASES = text
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line));
const BASE = {
  id: 1,
  type: "create",
  from: "hyperty://a.com/1",
  to: "hyperty://b.com/2",
  body: {},
};
const VERDICTS = {
  permit: [true, true],
  deny: [false, false],
  notApplicable: [true, false],
  indeterminate: [false, false],
};

/** The document of a case, from its short forms. */
function documentOf(given) {
  const algorithm = given.alg ? { ruleCombiningAlgorithm: given.alg } : {};
  const around = {};
  const setAlgorithm = given.set_alg ?? given.alg;
  if (setAlgorithm) around.policyCombiningAlgorithm = setAlgorithm;
  if (given.sobl) around.obligations = given.sobl;
  if (given.target) around.target = given.target;
  if (given.sets) return given.sets.map((set) => ({ ...around, ...set }));
  if (given.policies)
    return [{ ...around, policies: given.policies.map((policy) => ({ ...algorithm, ...policy })) }];
  const rules = given.rules ?? [{ effect: given.effect ?? "permit", condition: given.cond }];
  return [
    {
      ...around,
      policies: [{ rules, ...algorithm, ...(given.pobl ? { obligations: given.pobl } : {}) }],
    },
  ];
}

function factsOf(given) {
  const message = { ...BASE, ...given.msg };
  if (given.user) {
    message.body = {
      ...message.body,
      identity: { userProfile: { username: given.user }, idp: given.idp ?? "google.com" },
    };
  }
  const { identity } = message.body;
  const speaker = {
    username: identity?.userProfile?.username,
    issuer: identity?.idp,
    groups: given.groups,
  };
  const now = new Date(`${given.now ?? "2017-03-15T12:00:00"}Z`);
  const facts = new Facts(message, { direction: given.direction, speaker, now, node: given.node });
  return facts.give({ addrAllastMin: 0, ...given.pip });
}

for (const given of CASES) {
  test(`${given.id} ${given.why}`, () => {
    const engine = new PolicyEngine(documentOf(given), { forced: true });
    if (given.before) engine.decide(factsOf({ ...given, user: null, msg: {}, ...given.before }));
    const facts = factsOf(given);
    const { effect, obligations } = engine.decide(facts);
    assert.equal(effect, given.expect);
    const [passes, auth] = VERDICTS[effect];
    if (given.deliver !== undefined) assert.equal(passes, given.deliver);
    if (given.auth !== undefined) assert.equal(auth, given.auth);
    if (given.obligations)
      assert.deepEqual(
        obligations.map(({ name, value }) => [name, value]),
        given.obligations,
      );
    if (given.delivered) {
      const { auth: _, assertedIdentity: __, ...body } = rewritten(facts.message.body, obligations);
      assert.deepEqual({ ...body, auth }, given.delivered);
    }
  });
}

test("all cases are there", () => assert.equal(new Set(CASES.map(({ id }) => id)).size, 82));

for (const [document, path] of [
  [[{ policies: [{ rules: [{ effect: "maybe" }] }] }], "$[0].policies[0].rules[0].effect"],
  [
    [{ policies: [{ rules: [{ effect: "deny", condition: { nobody: { equals: 1 } } }] }] }],
    "nobody",
  ],
  [[{ policies: [{ rules: [{ effect: "deny", condition: { msgTo: { is: 1 } } }] }] }], "msgTo.is"],
  [
    [{ policies: [{ rules: [{ effect: "deny", condition: { time: { between: "6 7" } } }] }] }],
    "time.between",
  ],
  [
    [{ policies: [{ rules: [{ effect: "deny", condition: { msgTo: { in: ["@friends"] } } }] }] }],
    "friends",
  ],
  [[{ policies: [{ rules: [{ effect: "deny", obligations: { fly: 1 } }] }] }], "obligations.fly"],
  [[{ policies: [{ rules: [], ruleCombiningAlgorithm: "majority" }] }], "ruleCombiningAlgorithm"],
  [[{ policies: [], colour: "red" }], "$[0].colour"],
  [
    [
      {
        policies: [
          {
            rules: [
              { effect: "deny", id: "a" },
              { effect: "deny", id: "a" },
            ],
          },
        ],
      },
    ],
    "rules",
  ],
  ["text", "$[0]"],
]) {
  test(`a fault in a document is named by its path: ${path}`, () => {
    assert.throws(
      () => new PolicyEngine(document),
      (error) => error instanceof PolicyError && error.problems.some((each) => each.includes(path)),
    );
  });
}

const rules = (...all) => [{ policies: [{ rules: all }] }];
const buses = [];
afterEach(() => buses.splice(0).forEach((bus) => bus.close())); // no timer of theirs keeps Node.js waiting
const here = (engine, options) => {
  const bus = new MessageBus("runtime://d/1");
  buses.push(bus);
  bus.onError(() => {});
  const sent = [];
  bus.addListener("runtime://f/protostub/1", (message) => sent.push(message));
  bus.resolver = { route: () => "runtime://f/protostub/1" };
  bus.pipelineOut.use(policyHandler(engine, options));
  bus.pipelineIn.use(policyHandler(engine, options));
  return { bus, sent };
};

test("R55 on a bus: a refusal says on which side, with the words of `inform`; what passes is marked", async () => {
  const engine = new PolicyEngine(
    rules(
      {
        effect: "deny",
        condition: { msgTo: { like: "*forbidden" } },
        obligations: { inform: "Not this one." },
      },
      { effect: "permit", condition: { msgTo: { like: "*allowed" } } },
    ),
  );
  const { bus, sent } = here(engine);
  const create = (to) => ({ type: "create", from: "hyperty://d/a", to, body: { auth: true } });
  await assert.rejects(
    bus.request(create("hyperty://f/forbidden")),
    ({ code, body }) =>
      code === 403 &&
      body.desc === body.description &&
      body.desc.includes("(out)") &&
      body.desc.includes("Not this one."),
  );
  bus.postMessage(create("hyperty://f/allowed"));
  bus.postMessage(create("hyperty://f/other"));
  await settled();
  assert.deepEqual(
    sent.map(({ body }) => body.auth),
    [true, false],
  );
});

test("R55 on a bus: an identity that no node has verified counts for nothing on the way in", async () => {
  const engine = new PolicyEngine(
    rules({ effect: "deny", condition: { srcUsername: { equals: "eve@f" } } }),
  );
  const { bus } = here(engine);
  const heard = [];
  bus.addListener("hyperty://d/a", ({ body }) => heard.push(body.n));
  const identity = { userProfile: { username: "eve@f" }, idp: "f" };
  const bring = (n, more) =>
    bus.postFrom("runtime://f/protostub/1", {
      id: n,
      type: "update",
      from: "hyperty://f/x",
      to: "hyperty://d/a",
      body: { n, identity, ...more },
    });
  bring(1, {});
  bring(2, { assertedIdentity: true });
  await settled();
  assert.deepEqual(heard, [1]);
});

test("a rate limit refuses what goes beyond it with 429, and begins anew in the next window", async () => {
  let seconds = 0;
  const engine = new PolicyEngine(
    rules({ effect: "permit", obligations: { rateLimit: { "rate.msgFrom.minute": 2 } } }),
  );
  const { bus, sent } = here(engine, { now: () => new Date(seconds * 1000) });
  const codes = [];
  const post = () =>
    bus.postMessage({ type: "create", from: "hyperty://d/a", to: "hyperty://f/x" }, ({ body }) =>
      codes.push(body.code),
    );
  post();
  post();
  post();
  await settled();
  assert.deepEqual([sent.length, codes], [2, [429]]);
  seconds = 60;
  post();
  await settled();
  assert.equal(sent.length, 3);
});

test("rates count the messages that were judged", () => {
  const engine = new PolicyEngine(
    rules({ effect: "deny", condition: { "rate.msgTo.minute": { moreThan: 3 } } }),
  );
  const handler = policyHandler(engine, { now: () => new Date(0) });
  const judge = () => handler({ ...BASE }, { direction: "out" }).code;
  assert.deepEqual([judge(), judge(), judge(), judge()], [undefined, undefined, undefined, 403]);
});

test("lists that the runtime keeps are named with @", () => {
  const engine = new PolicyEngine(
    rules({ effect: "deny", condition: { msgFrom: { in: "@blocked" } } }),
    { lists: { blocked: [BASE.from] } },
  );
  assert.equal(engine.decide(new Facts(BASE)).effect, "deny");
});
