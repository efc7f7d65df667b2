/** A domain registry in front of another one that speaks HTTP: that of reTHINK's first implementation. */
export default function (node, { base }) {
  const path = (...parts) => base + parts.map((part) => "/" + encodeURIComponent(part)).join("");

  async function ask(method, url, body) {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
    const said = answer.status === 204 ? {} : await answer.json();
    if (answer.ok || answer.status === 408) return said; // 408: found, but not live
    const code = answer.status < 500 ? answer.status : 503;
    throw Object.assign(new Error(said.message ?? "The registry refuses it."), { code });
  }

  const entry = ({ kind, url }) => path(kind === "hyperty" ? "hyperty" : "dataobject", "url", url);

  return {
    handles: "domain-registry",

    async find({ kind, resources = [], dataSchemes = [], ...by }) {
      const words = [["resources", resources], ["dataSchemes", dataSchemes]].filter(([, all]) => all.length);
      const query = words.map(([name, all]) => `${name}=${all.map(encodeURIComponent)}`).join("&");
      const key = ["url", "user", "guid", "email", "name", "reporter"].find((name) => by[name]);
      const isHyperty = kind === "hyperty";
      const where = isHyperty ? path("hyperty", key, by[key]) : path("hyperty", "dataobject", key, by[key]);
      const found = await ask("GET", where + (query && (isHyperty ? "/hyperty?" : "/do?") + query));
      return key === "url" && !(query && !isHyperty) ? { [by.url]: found } : found;
    },

    register: ({ kind, url, user, body }) =>
      kind === "hyperty"
        ? ask("PUT", path("hyperty", "user", user, url), body)
        : ask("PUT", path("hyperty", "dataobject", url), { ...body, url }),
    refresh: (what) => ask("PUT", entry(what), {}),
    change: ({ body: { guid, ...body }, ...what }) => ask("PUT", entry(what), body),
    remove: ({ kind, url, user }) =>
      user && kind === "hyperty"
        ? ask("DELETE", path("hyperty", "user", user, url))
        : ask("PUT", entry({ kind, url }), { status: "disconnected" }),
  };
}
