// The OpenID provider `oidc-provider` for one client: node oidc_provider.mjs MODULES PORT REDIRECT PEOPLE
// PEOPLE is a file of JSON: {"<login>": {"name": …, "groups": […]}}, read at each log-in.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modules, port, redirect, people] = process.argv.slice(2);
const place = pathToFileURL(`${modules}/oidc-provider/lib/index.js`);
const { Provider } = await import(place.href);
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [{ client_id: "the-node", client_secret: "s:ecret 7", redirect_uris: [redirect] }],
  claims: { openid: ["sub"], profile: ["name", "preferred_username", "groups"], email: ["email"] },
  pkce: { required: () => true },
  findAccount: (_, login) => ({
    accountId: login,
    claims: () => ({
      sub: login,
      preferred_username: login,
      ...JSON.parse(readFileSync(people, "utf8"))[login],
    }),
  }),
});
provider.listen(Number(port), "127.0.0.1", () => process.stdout.write("listening\n"));
