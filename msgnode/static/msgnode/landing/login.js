/**
 * Logging in to the node from its own page: to the provider and back, and what is kept meanwhile.
 *
 * Tokens are kept for this tab only. The runtimes of the page say the access token when they connect,
 * so that their sessions are bound to the person; the node then vouches for what they send.
 */

import { authorisationUrl, random, redeem, tokenInfo } from "../idp-proxy.js";

const PENDING = "node.login";
const TOKENS = "node.tokens";
const PAGE = `${location.origin}/`;
const CONFIG = {
  clientId: "newcomer",
  redirectURI: PAGE,
  authorisation: "/o/authorize/",
  token: "/o/token/",
  tokenInfo: "/o/tokeninfo",
};

/** Who is logged in: {name, token, idToken}, or null. Takes up a log-in that has just come back. */
export async function whoIsHere() {
  const query = new URLSearchParams(location.search);
  if (query.has("state")) await takeUp(query);
  const kept = JSON.parse(sessionStorage.getItem(TOKENS) ?? "null");
  if (!kept || kept.until < Date.now()) {
    sessionStorage.removeItem(TOKENS);
    return null;
  }
  return kept;
}

async function takeUp(query) {
  const pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "null");
  sessionStorage.removeItem(PENDING);
  history.replaceState(null, "", PAGE);
  if (!pending || pending.state !== query.get("state") || !query.has("code")) return;
  const tokens = await redeem(CONFIG, query.get("code"), pending.verifier);
  const claims = await tokenInfo(CONFIG, tokens.id_token);
  if (claims.nonce !== pending.nonce) throw new Error("The answer belongs to another log-in.");
  const kept = {
    name: claims.email ?? claims.preferred_username ?? claims.sub,
    token: tokens.access_token,
    idToken: tokens.id_token,
    until: Date.now() + tokens.expires_in * 1000,
  };
  sessionStorage.setItem(TOKENS, JSON.stringify(kept));
}

export async function logIn() {
  const pending = { verifier: random(48), state: random(16), nonce: random(16) };
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  location.assign(await authorisationUrl(CONFIG, pending));
}

export function logOut({ idToken }) {
  sessionStorage.removeItem(TOKENS);
  const query = new URLSearchParams({ id_token_hint: idToken, post_logout_redirect_uri: PAGE });
  location.assign(`/o/logout/?${query}`);
}
