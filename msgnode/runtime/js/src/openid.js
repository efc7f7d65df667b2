/**
 * Log in at an OpenID provider: code flow with PKCE, in a page or (Node.js) over a loopback address.
 *
 *   await runtime.logIn(openid({ issuer: "https://node.example/o", clientId: "my-app" }));
 *
 * Rules
 * - In a page, the first log-in leaves for the provider and comes back: logIn() is called again then, and takes it up.
 *   In Node.js `open(url)` shows the address to the person, and the answer comes to a port of 127.0.0.1.
 * - What the provider says of itself must name the same issuer; its addresses are https, or http on this machine.
 * - An answer counts if state, issuer and nonce are those that were asked for.
 * - Tokens are kept in `storage`, in a page the tab's own; renewal and log-out use the provider's addresses.
 */

import { CodedError } from "./errors.js";
import { newId } from "./ids.js";

const NODE_HTTP = ["node", "http"].join(":"); // bundlers for pages need not look for it
const FETCH_TIME = 10_000; // ms
const PERSON_TIME = 300_000; // ms that somebody may take to log in
const OPTIONS = ["issuer", "clientId", "redirectURI", "scope", "token", "storage", "open", "fetch"];

/** The provider refuses, or answers what is not to be believed. `code` 401, or 504 for no answer. */
export class OpenIdError extends CodedError {
  name = "OpenIdError";
}

/**
 * Who logs in at an OpenID provider; for runtime.logIn().
 *
 * @param options {issuer: its URL, clientId, scope: "openid email profile", token: "access" or "id": which is shown to the
 *   node, redirectURI: this page, storage: sessionStorage, open(url): Node.js, shows the address; fetch}
 * @throws TypeError
 */
export function openid(options) {
  return new OpenId(checked(options));
}

/** A log-in that can be renewed. */
export class OpenId {
  #options;
  #key;
  #tokens = null; // {access, id, refresh, expires}
  #provider = null;

  /** @param options checked ones, as of openid() */
  constructor(options) {
    this.#options = options;
    this.#key = `msgnode.openid.${options.issuer}.${options.clientId}`;
  }

  /** {token, expires: ms since 1970}: kept, renewed, or of a person who logs in now. Rejects with an OpenIdError. */
  async token() {
    this.#tokens ??= this.#read(this.#key);
    const query = new URLSearchParams(globalThis.location?.search ?? "");
    if (query.has("state") && this.#read(`${this.#key}.pending`)) await this.#takeUp(query);
    if (this.#tokens && this.#tokens.expires > Date.now() + 1_000) return this.#shown();
    if (this.#tokens?.refresh) {
      try {
        return await this.renew();
      } catch (error) {
        if (error.code !== 401) throw error; // else the person logs in again
      }
    }
    await (globalThis.location ? this.#leave() : this.#listen());
    return this.#shown();
  }

  /** A token that is good for longer. Rejects with an OpenIdError: 401 if the person has to log in again. */
  async renew() {
    if (!this.#tokens?.refresh)
      throw new OpenIdError(401, `${this.#options.issuer} has given no refresh token.`);
    const form = { grant_type: "refresh_token", refresh_token: this.#tokens.refresh };
    await this.#redeem(form);
    return this.#shown();
  }

  /** Have the provider forget the tokens. */
  async logOut() {
    const tokens = this.#tokens ?? this.#read(this.#key);
    this.#tokens = null;
    this.#write(this.#key, null);
    const { revocation_endpoint: address } = await this.#discovered();
    if (!tokens || !address) return;
    await this.#post(address, { token: tokens.refresh ?? tokens.access });
  }

  #shown() {
    const { access, id, expires } = this.#tokens;
    const token = this.#options.token === "id" ? id : access;
    if (!token)
      throw new OpenIdError(
        401,
        `${this.#options.issuer} has given no ${this.#options.token} token.`,
      );
    return { token, expires };
  }

  // --- asking the person --------------------------------------------------------------------------

  /** Leave the page for the provider; what comes back calls logIn() again. */
  async #leave() {
    const { location } = globalThis;
    const asked = newQuestion(
      this.#options.redirectURI ?? `${location.origin}${location.pathname}`,
    );
    this.#write(`${this.#key}.pending`, asked);
    location.assign(await this.#address(asked));
    await new Promise(() => {}); // the page goes
  }

  async #takeUp(query) {
    const asked = this.#read(`${this.#key}.pending`);
    if (asked.state !== query.get("state")) return; // another log-in's
    this.#write(`${this.#key}.pending`, null);
    globalThis.history?.replaceState(null, "", globalThis.location.pathname);
    await this.#answered(asked, query);
  }

  /** Wait at a port of this machine for the person's browser. */
  async #listen() {
    const { createServer } = await import(/* @vite-ignore */ NODE_HTTP);
    const server = createServer();
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const asked = newQuestion(`http://127.0.0.1:${server.address().port}/`);
    let timer;
    const answer = new Promise((resolve, reject) => {
      const late = new OpenIdError(504, "Nobody has logged in in time.");
      timer = setTimeout(() => reject(late), PERSON_TIME);
      server.on("request", ({ url }, response) => {
        const query = new URL(url, asked.redirectURI).searchParams;
        const isIt = query.get("state") === asked.state;
        response.writeHead(isIt ? 200 : 404, { "Content-Type": "text/plain", Connection: "close" });
        response.end(isIt ? "You are logged in. This page may be closed." : "Not found.");
        if (isIt) resolve(query);
      });
    });
    try {
      await this.#options.open(await this.#address(asked));
      await this.#answered(asked, await answer);
    } finally {
      clearTimeout(timer);
      server.close();
    }
  }

  async #address({ state, nonce, verifier, redirectURI }) {
    const { authorization_endpoint: address } = await this.#discovered();
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
    const query = new URLSearchParams({
      response_type: "code",
      client_id: this.#options.clientId,
      redirect_uri: redirectURI,
      scope: this.#options.scope,
      state,
      nonce,
      code_challenge: base64url(new Uint8Array(digest)),
      code_challenge_method: "S256",
    });
    return `${address}${address.includes("?") ? "&" : "?"}${query}`;
  }

  async #answered({ nonce, verifier, redirectURI }, query) {
    const { issuer } = this.#options;
    if (query.has("iss") && query.get("iss") !== issuer)
      throw new OpenIdError(401, `The answer is of ${query.get("iss")}, not of ${issuer}.`);
    if (!query.has("code")) {
      const said = query.get("error_description") ?? query.get("error") ?? "no reason";
      throw new OpenIdError(401, `${issuer} lets nobody in: ${said}`);
    }
    const form = { grant_type: "authorization_code", code: query.get("code") };
    await this.#redeem({ ...form, redirect_uri: redirectURI, code_verifier: verifier }, nonce);
  }

  // --- the provider -------------------------------------------------------------------------------

  async #redeem(form, nonce) {
    const { issuer, clientId } = this.#options;
    const { token_endpoint: address } = await this.#discovered();
    const said = await this.#post(address, form);
    if (typeof said.access_token !== "string")
      throw new OpenIdError(401, `${issuer} has given no access token.`);
    if (nonce !== undefined && said.id_token) {
      const claims = claimsOf(said.id_token);
      if (claims.nonce !== nonce || ![claims.aud].flat().includes(clientId))
        throw new OpenIdError(401, "The answer belongs to another log-in.");
    }
    const seconds = Number(said.expires_in);
    this.#tokens = {
      access: said.access_token,
      id: said.id_token ?? this.#tokens?.id,
      refresh: said.refresh_token ?? this.#tokens?.refresh,
      expires: Date.now() + (seconds > 0 ? seconds : 3600) * 1000,
    };
    this.#write(this.#key, this.#tokens);
  }

  async #discovered() {
    if (this.#provider) return this.#provider;
    const { issuer } = this.#options;
    const said = await this.#asked(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
    if (said.issuer !== issuer)
      throw new OpenIdError(401, `The provider is ${said.issuer}, not ${issuer}.`);
    for (const name of ["authorization_endpoint", "token_endpoint", "revocation_endpoint"])
      if ((said[name] ?? name !== "revocation_endpoint") && !isSafe(said[name]))
        throw new OpenIdError(401, `${issuer} names no safe ${name}.`);
    return (this.#provider = said);
  }

  #post(address, form) {
    const body = new URLSearchParams({ ...form, client_id: this.#options.clientId });
    return this.#asked(address, { method: "POST", body });
  }

  async #asked(address, options = {}) {
    const { fetch = globalThis.fetch } = this.#options;
    let answer, text;
    try {
      const signal = AbortSignal.timeout(FETCH_TIME);
      answer = await fetch(address, { ...options, signal, redirect: "error", credentials: "omit" });
      text = await answer.text();
    } catch (error) {
      throw new OpenIdError(504, `${address} does not answer: ${error.message}`);
    }
    let said = {};
    try {
      said = JSON.parse(text || "{}");
    } catch {
      if (answer.ok) throw new OpenIdError(504, `${address} answers with no JSON.`);
    }
    if (answer.ok) return said;
    const words = said.error_description ?? said.error ?? `it answers ${answer.status}`;
    throw new OpenIdError(
      answer.status >= 500 || answer.status === 429 ? 504 : 401,
      `${address}: ${words}`,
    );
  }

  // --- what is kept -------------------------------------------------------------------------------

  #read(key) {
    try {
      return JSON.parse(this.#options.storage?.getItem(key) ?? "null");
    } catch {
      return null; // the person logs in again
    }
  }

  #write(key, value) {
    try {
      if (value === null) this.#options.storage?.removeItem(key);
      else this.#options.storage?.setItem(key, JSON.stringify(value));
    } catch {
      // a storage that is refused keeps nothing
    }
  }
}

function newQuestion(redirectURI) {
  const bytes = crypto.getRandomValues(new Uint8Array(48));
  return { state: newId(), nonce: newId(), verifier: base64url(bytes), redirectURI };
}

function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

/** The claims of a token that came from the provider itself. */
function claimsOf(token) {
  try {
    const [, payload] = String(token).split(".");
    return JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/"))) ?? {};
  } catch {
    return {};
  }
}

function isSafe(address) {
  if (!URL.canParse(address ?? "")) return false;
  const { protocol, hostname } = new URL(address);
  const isHere = /^(localhost|.*\.localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
  return protocol === "https:" || (protocol === "http:" && isHere);
}

function checked(options) {
  const shape = "an object with issuer and clientId";
  if (typeof options !== "object" || options === null)
    throw new TypeError(`openid takes ${shape}.`);
  for (const key of Object.keys(options))
    if (!OPTIONS.includes(key))
      throw new TypeError(`openid has no ${key}: it has ${OPTIONS.join(", ")}.`);
  const {
    issuer,
    clientId,
    scope = "openid email profile",
    token = "access",
    open = shown,
  } = options;
  if (!isSafe(issuer)) throw new TypeError("issuer is an https URL, or http on this machine.");
  if (typeof clientId !== "string" || !clientId)
    throw new TypeError("clientId is a text that is not empty.");
  if (typeof scope !== "string" || !scope.split(" ").includes("openid"))
    throw new TypeError('scope is a text with the word "openid" in it.');
  if (!["access", "id"].includes(token)) throw new TypeError('token is "access" or "id".');
  if (typeof open !== "function") throw new TypeError("open is a function of a URL.");
  return { storage: globalThis.sessionStorage, ...options, scope, token, open };
}

function shown(url) {
  console.log(`Log in at ${url}`);
}
