/** Who is logged in: shapes (shared with Python), and when it is renewed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { MessageBus } from "../src/common.js";
import { OpenIdError, openid } from "../src/openid.js";
import { LogIn } from "../src/log-in.js";
import { answerTo, errorBody } from "../src/messages.js";
import { FakeClock, settled } from "./fake-clock.mjs";

const CASES = await lines("identities.jsonl");

async function lines(name) {
  const url = new URL(name, import.meta.url);
  const text = globalThis.process
    ? await (await import("node:fs/promises")).readFile(url, "utf8")
    : await (await fetch(url)).text();
  return text.trim().split("\n").map(JSON.parse);
}

function begin(answer = { code: 200, value: { userURL: "user://d/bob" } }) {
  const clock = new FakeClock();
  const bus = new MessageBus("runtime://d/1", { clock });
  const all = { bus, clock, answer, asked: [], shown: [], events: [] };
  bus.resolver = { route: () => "runtime://d/protostub/1", isHome: () => true };
  bus.addListener("runtime://d/protostub/1", (message) => {
    all.asked.push(message.body.method);
    bus.postFrom("runtime://d/protostub/1", answerTo(message, all.answer));
  });
  const hear = ({ state, user, error }) => all.events.push([state, user, error?.code]);
  const show = async (identity) => all.shown.push(identity);
  all.logIn = new LogIn({ bus, domain: "d", listeners: new Set([hear]), show });
  return all;
}

for (const { case: name, identity, shown, error } of CASES) {
  test(`shared: ${name}`, async () => {
    const { logIn } = begin();
    if (error) {
      await assert.rejects(logIn.take(identity), (thrown) => {
        assert.ok(thrown instanceof TypeError);
        for (const each of error) assert.ok(thrown.message.includes(each), thrown.message);
        return true;
      });
    } else assert.deepEqual((await logIn.take(identity)) ?? null, shown);
  });
}

function source(lifetime) {
  let number = 0;
  const next = async () => ({ token: `t${(number += 1)}`, expires: Date.now() + lifetime });
  return { token: next, renew: next, logOut: async () => (number = -1) };
}

test("it is renewed before it ends, again and again, shown to the stub and to the node", async () => {
  const all = begin();
  await all.logIn.take(source(10_000));
  await all.logIn.accepted();
  for (let n = 0; n < 3; n += 1) {
    await all.clock.turn(8_001);
    await settled();
  }
  assert.deepEqual(
    all.shown.map(({ assertion }) => assertion),
    ["t2", "t3", "t4"],
  );
  assert.deepEqual(all.asked, ["login", "login", "login", "login"]);
  assert.deepEqual(
    all.events.map(([state]) => state),
    ["logged-in", "renewed", "renewed", "renewed"],
  );
  await all.logIn.end();
  assert.deepEqual([all.logIn.identity, all.logIn.user], [undefined, ""]);
  assert.deepEqual(all.events.at(-1), ["logged-out", "user://d/bob", undefined]);
  assert.equal(all.clock.timers, 0);
});

test("a provider that does not answer is asked again; one that refuses ends the log-in, which is told", async () => {
  const all = begin();
  const failing = source(100_000);
  let code = 504;
  failing.renew = async () => {
    throw new OpenIdError(code, "No.");
  };
  await all.logIn.take(failing);
  await all.logIn.accepted();
  await all.clock.turn(80_001);
  await settled();
  assert.deepEqual(all.events.at(-1), ["failed", "user://d/bob", 504]);
  code = 401;
  await all.clock.turn(5_001);
  await settled();
  assert.deepEqual(all.events.at(-1), ["expired", "user://d/bob", 401]);
  assert.equal(all.clock.timers, 0);
});

test("one that has ended while the provider was away is renewed when the stub connects, once at a time", async () => {
  const all = begin();
  const away = source(4_000); // it counts as ended from the start: the node's clock may be ahead
  const { renew } = away;
  let [asked, answers] = [0, null];
  away.renew = () => {
    asked += 1;
    return new Promise((resolve, reject) => (answers = { resolve, reject }));
  };
  await all.logIn.take(away);
  await all.logIn.accepted();
  await all.clock.turn(3_201);
  for (let n = 0; n < 2; n += 1) {
    answers.reject(new OpenIdError(504, "No."));
    await settled();
    assert.deepEqual(all.events.at(-1), ["failed", "user://d/bob", 504]);
    if (n === 0) await all.clock.turn(5_001);
  }
  all.logIn.renewIfEnded();
  all.logIn.renewIfEnded();
  assert.equal(asked, 3);
  answers.resolve(await renew());
  await settled();
  assert.equal(all.events.at(-1)[0], "renewed");
  all.logIn.stop();
});

test("a node that does not accept it says so, and one without an identity manager need not", async () => {
  const refusing = begin(errorBody(401, "The token has ended."));
  await refusing.logIn.take({ accessToken: "x" });
  await assert.rejects(refusing.logIn.accepted(), { code: 401, message: "The token has ended." });
  const fields = begin(errorBody(404, "Nobody there."));
  await fields.logIn.take({ accessToken: "x" });
  await fields.logIn.accepted();
  assert.deepEqual(fields.events, [["logged-in", "", undefined]]);
});

test("options of openid that are wrong are named", () => {
  const good = { issuer: "https://d/o", clientId: "app" };
  for (const [options, word] of [
    [undefined, "openid takes"],
    [{ ...good, client: "x" }, "client:"],
    [{ ...good, issuer: "http://d/o" }, "issuer"],
    [{ ...good, issuer: 7 }, "issuer"],
    [{ ...good, clientId: "" }, "clientId"],
    [{ ...good, scope: "email" }, "scope"],
    [{ ...good, token: "refresh" }, "token"],
    [{ ...good, open: "url" }, "open"],
  ])
    assert.throws(
      () => openid(options),
      (error) => error instanceof TypeError && error.message.includes(word),
    );
});
