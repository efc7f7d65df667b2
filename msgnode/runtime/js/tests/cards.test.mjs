/** Case R68: cards that prove nothing are refused before any code is loaded; what a good one does. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { assertedOf, jwkOf, pair, publish, tokenOf } from "./issuer.mjs";
import { STUB, descriptorOf, endWorld, newWorld } from "./world.mjs";

const BOB = "bob@f";
const BASE = "https://f/.well-known";
let runtime, clock, catalogues, world;

beforeEach(() => {
  ({ runtime, clock, catalogues, world } = newWorld());
});
afterEach(() => endWorld({ runtime, clock }));

/** The domain f, whose identity provider asserts what a test says. */
async function serve({
  head,
  claims,
  signer,
  keys,
  card = `${BASE}/contact-card`,
  mangle = (token) => token,
  resource = "acct:bob@f",
} = {}) {
  const said = await assertedOf("f", claims);
  const token = mangle(await tokenOf(said, { head, signer }));
  const links = [{ rel: "protocolstub" }, 5, { rel: "contact-card", href: card }];
  catalogues.answers.set(`${BASE}/webfinger?resource=${encodeURIComponent(resource)}`, {
    json: { links },
  });
  catalogues.answers.set(`${BASE}/contact-card`, { text: token });
  await publish(catalogues, "f", keys);
  return said;
}

test("a card says who it is and what leads to him", async () => {
  for (const [user, resource] of [
    [BOB, "acct:bob@f"],
    ["user://f/bob", "user://f/bob"],
  ]) {
    const claims = await serve({ resource });
    const card = await runtime.cardOf(user);
    assert.deepEqual(
      [card.userURL, card.domain, card.protostub],
      ["user://f/bob", "f", claims.protostub],
    );
    assert.deepEqual([card.digests, card.expires], [claims.protostub_digests, claims.exp]);
  }
});

test("a card says where he is invited, and what may be called", async () => {
  await serve();
  const { endpoint, hyperty } = await runtime.cardOf(BOB);
  assert.deepEqual([endpoint, hyperty], ["", ""]);
  await serve({ claims: { push: { endpoint: "https://f/push/1" }, hyperty: "hyperty://f/1" } });
  const card = await runtime.cardOf(BOB);
  assert.deepEqual([card.endpoint, card.hyperty], ["https://f/push/1", "hyperty://f/1"]);
  await serve({ claims: { push: "x", hyperty: "hyperty://elsewhere/1" } });
  assert.equal((await runtime.cardOf(BOB)).hyperty, "");
});

test("R68: a card that proves nothing is refused before any code is loaded", async () => {
  const now = Math.floor(Date.now() / 1000);
  await pair("weak", 1024);
  const lies = [
    [{ signer: "other" }, "not signed"],
    [{ signer: "weak", keys: [await jwkOf(await pair("weak"))] }, "not signed"],
    [{ mangle: (token) => token.replace(".", ".e") }, ""],
    [
      { head: { alg: "none" }, mangle: (token) => token.slice(0, token.lastIndexOf(".") + 1) },
      "not signed",
    ],
    [{ head: { alg: "HS256" } }, "not signed"],
    [{ keys: { x: 5 } }, "not signed"],
    [{ keys: [5, { kty: "RSA", kid: "k" }] }, "not signed"],
    [{ claims: { iss: "https://elsewhere.example/o" } }, "not at f"],
    [{ claims: { iss: "http://f.example/o" } }, "not https"],
    [{ claims: { iat: now - 7200, exp: now - 3600 } }, "expired"],
    [{ claims: { exp: now + 365 * 86_400 } }, "too long"],
    [{ claims: { iat: now + 3000 } }, "not yet"],
    [{ claims: { exp: null } }, "no numbers"],
    [{ claims: { exp: "soon" } }, "no numbers"],
    [{ claims: { aud: "party" } }, "audience"],
    [{ claims: { user_url: "user://f/mallory" } }, "mallory"],
    [{ claims: { user_url: "user://d/bob" } }, "user://d/bob"],
    [{ claims: { protostub: "https://evil.example/x" } }, "not at f"],
    [{ claims: { protostub: "http://f.example/x" } }, "not https"],
    [{ claims: { push: { endpoint: "https://evil.example/push/1" } } }, "not at f"],
    [{ claims: { push: { endpoint: 5 } } }, "no URL"],
    [{ claims: { user_url: "hyperty://f/bob" } }, "hyperty://f/bob"],
    [{ claims: { protostub_digests: "sha256-x" } }, "no list"],
    [{ claims: { protostub_digests: Array(1000).fill("x") } }, "no list"],
    [{ mangle: () => "x.y" }, "no signed"],
    [{ mangle: () => "x".repeat(20_000) }, "larger"],
    [{ card: "https://evil.example/" }, "not at f"],
    [{ card: 5 }, "no URL"],
  ];
  for (const [lie, said] of lies) {
    await serve(lie);
    const error = await runtime.cardOf(BOB).catch((error) => error);
    assert.equal(error.code, 502, `${said}: ${error.message}`);
    assert.ok(error.message.includes(said), `${said}: ${error.message}`);
  }
  assert.deepEqual(
    catalogues.asked.filter((each) => each.includes("protocolstub")),
    [],
  );
  assert.equal(world.started.length, 0);
});

test("a domain without cards, one that fails, and names that are none", async () => {
  await assert.rejects(runtime.cardOf(BOB), { code: 404, message: `f has no card of ${BOB}.` });
  const url = `${BASE}/webfinger?resource=${encodeURIComponent("acct:bob@f")}`;
  const answers = [
    [{ json: { links: "x" } }, 404],
    [{ status: 503, text: "{}" }, 504],
    [{ status: 302 }, 502],
    [{ text: "[".repeat(10_000) }, 502],
    [{ text: "5" }, 502],
  ];
  for (const [answer, code] of answers) {
    catalogues.answers.set(url, answer);
    await assert.rejects(runtime.cardOf(BOB), { code });
  }
  catalogues.asked.length = 0;
  for (const name of [
    "",
    "bob",
    "@f",
    "bob@",
    "hyperty://f/bob",
    "user://f",
    "bob@f\n",
    "b@f/../x",
  ]) {
    await assert.rejects(runtime.cardOf(name), { code: 400 });
  }
  assert.deepEqual(catalogues.asked, []);
});

test("a stub is loaded only if the card names its code", async () => {
  const asked = { type: "read", from: "hyperty://d/a", to: "hyperty://f/x" };
  await catalogues.add("f");
  await serve({ claims: { protostub_digests: [`sha256-${"A".repeat(43)}=`] } });
  await runtime.cardOf(BOB);
  await assert.rejects(runtime.bus.request(asked), { code: 502 });
  assert.equal(world.started.length, 0);
});

test("the stub that the card names is loaded, whichever of its digests it has", async () => {
  await catalogues.add("f");
  const { sourcePackage } = await descriptorOf("f", STUB);
  await serve({
    claims: { protostub_digests: [`sha256-${"A".repeat(43)}=`, sourcePackage.integrity] },
  });
  await runtime.cardOf(BOB);
  world.sent = (stub, { id, type, from, to }) => {
    if (type === "read")
      stub.bring({ id, type: "response", from: to, to: from, body: { code: 200 } });
  };
  assert.equal(
    (await runtime.bus.request({ type: "read", from: "hyperty://d/a", to: "hyperty://f/x" })).code,
    200,
  );
});
