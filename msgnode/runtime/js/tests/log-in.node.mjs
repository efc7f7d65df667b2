/** The log-in of a page: it leaves for the provider, comes back, and is read again. A page cannot have another location. */

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { OpenIdError, openid } from "../src/openid.js";
import { newStorage } from "./peers.mjs";
import { until } from "./world.mjs";

const ISSUER = "https://d/o";
const part = (claims) => Buffer.from(JSON.stringify(claims)).toString("base64url");

afterEach(() => {
  delete globalThis.location;
});

/** A provider that answers as `changes` say; what it was asked. */
function provider(changes = {}) {
  const asked = [];
  const said = { nonce: "", issuer: ISSUER, lifetime: 3600, ...changes };
  const fetch = async (url, { body } = {}) => {
    if (url === `${ISSUER}/.well-known/openid-configuration`)
      return Response.json({
        issuer: said.issuer,
        authorization_endpoint: `${ISSUER}/authorize`,
        token_endpoint: `${ISSUER}/token`,
        revocation_endpoint: `${ISSUER}/revoke`,
      });
    asked.push([url.slice(ISSUER.length), Object.fromEntries(body)]);
    if (said.refusal) return Response.json({ error: said.refusal }, { status: 400 });
    const { grant_type: kind } = asked.at(-1)[1];
    const id = `x.${part({ nonce: said.nonce, aud: "app" })}.x`;
    const name = `access of ${kind}`;
    const tokens = { access_token: name, refresh_token: "r", expires_in: said.lifetime };
    return Response.json(kind === "authorization_code" ? { ...tokens, id_token: id } : tokens);
  };
  return { asked, said, fetch };
}

function page(search = "") {
  const left = [];
  globalThis.location = {
    search,
    origin: "https://app",
    pathname: "/",
    assign: (to) => left.push(to),
  };
  return left;
}

async function leave(storage, fetch) {
  const left = page();
  openid({ issuer: ISSUER, clientId: "app", storage, fetch }).token();
  await until(() => left.length, "the page leaves");
  return new URL(left[0]).searchParams;
}

test("a page leaves with a challenge, and the code that comes back is redeemed with its verifier", async () => {
  const storage = newStorage();
  const { asked, said, fetch } = provider();
  const query = await leave(storage, fetch);
  assert.deepEqual(
    ["client_id", "redirect_uri", "code_challenge_method"].map((each) => query.get(each)),
    ["app", "https://app/", "S256"],
  );
  said.nonce = query.get("nonce");
  page(`?code=c&state=${query.get("state")}&iss=${encodeURIComponent(ISSUER)}`);
  const again = openid({ issuer: ISSUER, clientId: "app", storage, fetch });
  const { token, expires } = await again.token();
  assert.equal(token, "access of authorization_code");
  assert.ok(expires > Date.now() + 3_500_000);
  const [[path, form]] = asked;
  assert.deepEqual([path, form.code, form.redirect_uri], ["/token", "c", "https://app/"]);
  const digest = await crypto.subtle.digest(
    "SHA-256",
    new TextEncoder().encode(form.code_verifier),
  );
  assert.equal(Buffer.from(digest).toString("base64url"), query.get("code_challenge"));
  page(); // it is read again
  const later = openid({ issuer: ISSUER, clientId: "app", storage, fetch });
  assert.equal((await later.token()).token, token);
  assert.equal((await later.renew()).token, "access of refresh_token");
  await later.logOut();
  assert.deepEqual(asked.at(-1), ["/revoke", { token: "r", client_id: "app" }]);
  assert.equal(storage.getItem(`msgnode.openid.${ISSUER}.app`), null);
});

test("what comes back for another log-in, of another issuer, or as a refusal lets nobody in", async () => {
  for (const [search, changes] of [
    ["&code=c", { nonce: "another" }],
    ["&code=c&iss=https%3A%2F%2Fevil", {}],
    ["&error=access_denied", {}],
    ["&code=c", { refusal: "invalid_grant" }],
  ]) {
    const storage = newStorage();
    const { said, fetch } = provider();
    const query = await leave(storage, fetch);
    Object.assign(said, { nonce: query.get("nonce") }, changes);
    page(`?state=${query.get("state")}${search}`);
    const back = openid({ issuer: ISSUER, clientId: "app", storage, fetch });
    await assert.rejects(
      back.token(),
      (error) => error instanceof OpenIdError && error.code === 401,
    );
  }
  const { fetch } = provider({ issuer: "https://evil" });
  page();
  await assert.rejects(openid({ issuer: ISSUER, clientId: "app", fetch }).token(), OpenIdError);
});
