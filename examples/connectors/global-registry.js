/** A global registry in front of another one that speaks HTTP. The node proves the records. */
export default function (node, { base }) {
  async function ask(method, guid, body) {
    const answer = await fetch(`${base}/guid/${encodeURIComponent(guid)}`, { method, body });
    const said = await answer.json();
    if (answer.ok) return said.Value;
    const code = answer.status < 500 ? answer.status : 503;
    throw Object.assign(new Error(said.Explanation || said.Description || "It refuses that."), { code });
  }

  return {
    handles: "global-registry",
    get: ({ guid }) => ask("GET", guid),
    put: async ({ guid, jwt }) => void (await ask("PUT", guid, jwt)),
  };
}
