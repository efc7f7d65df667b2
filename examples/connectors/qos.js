/** A broker in front of another allocator of TURN servers: the two calls of the QoS broker of reTHINK. */
export default function (node, { base }) {
  const KINDS = ["audio", "video", "data"];
  const refusal = (code, text) => Object.assign(new Error(text), { code });

  async function get(call, query) {
    const answer = await fetch(`${base}/${call}?${new URLSearchParams(query)}`);
    const text = await answer.text();
    if (answer.status === 200) return text ? JSON.parse(text) : null;
    if (/consumption exceeded/i.test(text)) throw refusal(403, "The quota of the customer is used up.");
    if (/csp not found/i.test(text)) throw refusal(404, "The QoS broker knows no such customer.");
    throw refusal(503, "The QoS broker cannot answer this at the moment.");
  }

  async function servers(id) {
    const [username, place] = id.split(" ");
    const { password } = await get("getCredentials", { clientId: username });
    if (!password) throw new Error("It has returned no credential.");
    return [{ urls: [`turn:${place}`], username, credential: password }];
  }

  const volumes = (said) => Object.fromEntries(KINDS.map((kind) => [kind, Number(said[kind] ?? 0)]));

  return {
    handles: "qos",

    async inquire({ customer }) {
      if (!customer) return {};
      const key = `prov:${customer}`;
      const consumed = volumes((await get("getCspConso", { cspkey: key })) ?? {});
      const mine = ((await get("getAllCspInfo")) ?? []).find((each) => each.csp === key);
      if (!mine) throw refusal(404, `There is no customer ${customer}.`);
      const quota = volumes({ audio: mine.audioQuota, video: mine.videoQuota, data: mine.dataQuota });
      const available = { data: Math.max(0, quota.data - consumed.data) };
      return { cspId: customer, quota, consumed, available };
    },

    async reserve({ customer = "", clientName = "" }) {
      const found = await get("getAppropriateTurn", { cspId: customer, clientName });
      const isText = (each) => typeof each === "string" && /^\S{1,60}$/.test(each);
      if (found?.length !== 2 || !found.every(isText)) throw new Error("It named no TURN server.");
      const [place, client] = found;
      const id = `${client} ${place}`;
      return { id, iceServers: await servers(id) };
    },

    renew: async ({ id }) => ({ iceServers: await servers(id) }),
  };
}
