/** The domain's identity provider in front of a plain OAuth2 service that signs identity tokens. */
export default function (node, config) {
  const { issuer, clientIds: [client], authorize, token, jwks, introspection, userinfo, revocation, back } = config;
  const headers = {
    "Content-Type": "application/x-www-form-urlencoded",
    Authorization: `Basic ${node.secret("basic")}`, // its value: the base64 of client:password
  };

  async function post(url, form) {
    const answer = await fetch(url, { method: "POST", headers, body: String(new URLSearchParams(form)) });
    if (answer.status >= 500) throw Object.assign(new Error("It does not answer."), { code: 503 });
    return answer.text().then((text) => (text ? JSON.parse(text) : {}));
  }

  async function challenge(verifier) {
    const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
    const text = btoa(String.fromCharCode(...new Uint8Array(hash)));
    return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  }

  /** What the service grants for the URL with which a log-in came back; nothing if it is none. */
  async function granted({ usernameHint = "" }) {
    if (!usernameHint.startsWith(`${back}?`)) return null;
    const query = new URL(usernameHint).searchParams;
    const state = `state ${query.get("state")}`;
    const kept = await node.store.get(state);
    if (!kept) return null;
    await node.store.delete(state); // a state is good once
    const form = { grant_type: "authorization_code", code: query.get("code"), redirect_uri: back };
    const said = await post(token, { ...form, code_verifier: kept.value });
    return said.id_token ? said : null;
  }

  /** The claims of a token whose form is known; the node itself verifies it. */
  const claimsOf = (jwt) => JSON.parse(atob(jwt.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")));

  return {
    handles: "identity",
    keys: async () => (await fetch(jwks)).json(),

    async introspect({ token: text }) {
      const said = await post(introspection, { token: text });
      if (!said.active) return null;
      if (said.sub || !userinfo) return said;
      const about = await fetch(userinfo, { headers: { Authorization: `Bearer ${text}` } });
      return { ...said, ...(await about.json()) }; // a service may tell only there whose it is
    },

    async loginUrl({ contents = "" }) {
      const [state, verifier] = [crypto.randomUUID(), crypto.randomUUID() + crypto.randomUUID()];
      await node.store.put(`state ${state}`, verifier);
      const query = { response_type: "code", client_id: client, redirect_uri: back, scope: "openid email" };
      const proof = { code_challenge: await challenge(verifier), code_challenge_method: "S256" };
      return `${authorize}?${new URLSearchParams({ ...query, state, nonce: contents, ...proof })}`;
    },

    async assertion(request) {
      const said = await granted(request);
      const idp = { domain: new URL(issuer).hostname, protocol: "OIDC" };
      return said && { assertion: said.id_token, idp, expires: claimsOf(said.id_token).exp };
    },

    async accessToken(request) {
      const said = await granted(request);
      const { hostname: domain } = new URL(issuer);
      const expires = Math.floor(Date.now() / 1000) + (said?.expires_in ?? 300);
      return said && { domain, resources: request.resources ?? [], accessToken: said.access_token, expires };
    },

    async revoke({ token: text }) {
      if (!revocation || !(await post(introspection, { token: text })).active) return false;
      await post(revocation, { token: text });
      return true;
    },
  };
}
