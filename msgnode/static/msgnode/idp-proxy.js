/**
 * The identity proxy of this node's provider, for runtimes: assertions by logging in, in a browser.
 *
 * activate(url, bus, config) puts it on a bus, where it answers `execute` sent to
 * `domain-idp://<domain>`:
 *   getLoginEndpoint, generateAssertion {contents, origin, usernameHint}, validateAssertion {assertion}
 * `generateAssertion` without a log-in is answered 401 with {name: "IdPLoginError", loginUrl}; when the
 * person has logged in there, it is asked again with the URL the window came back to as usernameHint.
 *
 * config: {domain, authorisation, token, tokenInfo, clientId, redirectURI}. There is no secret in it:
 * the code flow is bound to this page by PKCE. What is told by tokenInfo is for people to read; who
 * relies on an assertion verifies its token with the provider's keys.
 */

const SCOPE = "openid email profile";

export class IdentityProxy {
  #config;
  #logins = new Map(); // state -> verifier

  constructor(config) {
    this.#config = config;
  }

  /** The URL of the log-in window; `contents` comes back as the token's nonce. */
  async loginUrl(contents = "") {
    const { verifier, state } = { verifier: random(48), state: random(16) };
    this.#logins.set(state, verifier);
    return authorisationUrl(this.#config, { verifier, state, nonce: contents });
  }

  async generateAssertion(contents, origin, hint = "") {
    const back = queryOf(hint);
    const verifier = this.#logins.get(back.get("state") ?? "");
    if (!verifier || !back.get("code")) {
      throw Object.assign(new Error("A log-in is needed."), {
        name: "IdPLoginError",
        loginUrl: await this.loginUrl(contents),
      });
    }
    this.#logins.delete(back.get("state"));
    const tokens = await redeem(this.#config, back.get("code"), verifier);
    return identityOf(this.#config, tokens.id_token);
  }

  async validateAssertion(assertion) {
    const { tokenID } = JSON.parse(atob(assertion));
    const claims = await tokenInfo(this.#config, tokenID);
    return {
      identity: claims.email ?? claims.preferred_username ?? claims.sub,
      contents: claims.nonce,
    };
  }
}

/** Put a proxy on a bus. */
export function activate(url, bus, config) {
  const proxy = new IdentityProxy(config);
  const address = `domain-idp://${config.domain}`;
  bus.addListener(address, async ({ id, type, from, body = {} }) => {
    if (type !== "execute") return;
    const answer = (more) =>
      bus.postMessage({ id, type: "response", from: address, to: from, body: more });
    const params = Array.isArray(body.params)
      ? Object.assign({}, ...body.params)
      : (body.params ?? {});
    try {
      answer({ code: 200, value: await perform(proxy, body.method, params) });
    } catch ({ name, message, loginUrl }) {
      const code = loginUrl ? 401 : 400;
      answer({
        code,
        desc: message,
        description: message,
        value: loginUrl ? { name, loginUrl } : undefined,
      });
    }
  });
  return { name: `Identity proxy of ${config.domain}`, instance: proxy };
}

export default activate;

function perform(proxy, method, { contents, origin, usernameHint, assertion }) {
  if (method === "getLoginEndpoint") return proxy.loginUrl(contents);
  if (method === "generateAssertion")
    return proxy.generateAssertion(contents, origin, usernameHint);
  if (method === "validateAssertion") return proxy.validateAssertion(assertion);
  throw new Error(`There is no method ${method}.`);
}

/** The authorisation request; made of digits and letters only, so that it may be shown. */
export async function authorisationUrl(config, { verifier, state, nonce }) {
  const query = new URLSearchParams({
    response_type: "code",
    client_id: config.clientId,
    redirect_uri: config.redirectURI,
    scope: SCOPE,
    state,
    code_challenge: await challenge(verifier),
    code_challenge_method: "S256",
  });
  if (nonce) query.set("nonce", nonce);
  return `${config.authorisation}?${query}`;
}

/** Tokens for a code: {access_token, id_token, refresh_token, expires_in}. */
export async function redeem(config, code, verifier) {
  const body = new URLSearchParams({
    grant_type: "authorization_code",
    code,
    redirect_uri: config.redirectURI,
    client_id: config.clientId,
    code_verifier: verifier,
  });
  const answer = await fetch(config.token, { method: "POST", body });
  const said = await answer.json();
  if (!answer.ok)
    throw new Error(said.error_description ?? said.error ?? "The log-in was refused.");
  return said;
}

/** The claims of a valid token of the provider, as text. */
export async function tokenInfo(config, token) {
  const answer = await fetch(config.tokenInfo, {
    method: "POST",
    body: new URLSearchParams({ id_token: token }),
  });
  if (!answer.ok) throw new Error("The token is not valid.");
  return answer.json();
}

async function identityOf(config, token) {
  const claims = await tokenInfo(config, token);
  const name = claims.email ?? claims.preferred_username ?? claims.sub;
  return {
    assertion: btoa(
      JSON.stringify({ tokenID: token, tokenIDJSON: claims }).replace(/[\u0080-\uffff]/g, escaped),
    ),
    idp: { domain: config.domain, protocol: "OIDC" },
    userProfile: { ...claims, userURL: `user://${config.domain}/${segment(name)}` },
    expires: Number(claims.exp),
  };
}

/** A name as the last part of a user URL. */
function segment(name) {
  return name.replace(/[\s%/?#]/g, encodeURIComponent);
}

function escaped(letter) {
  return `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

function queryOf(url) {
  return new URLSearchParams(url.split("?")[1] ?? "");
}

export function random(bytes) {
  return base64url(crypto.getRandomValues(new Uint8Array(bytes)));
}

/** crypto.subtle is there over TLS and on the loopback only, as is logging in. */
async function challenge(verifier) {
  if (!crypto.subtle) throw new Error("Logging in needs HTTPS.");
  return base64url(
    new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))),
  );
}

function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes))
    .replace(/\+/g, "-")
    .replace(/\//g, "_")
    .replace(/=+$/, "");
}
