/**
 * A hyperty on any runtime: reachable through its home node, answering and asking.
 *
 * @param token the user's access token, if somebody is to be logged in
 */
export async function conversation(runtime, token) {
  await runtime.logIn();
  if (token) {
    const body = { method: "login", params: { token } };
    await runtime.bus.request({
      type: "execute",
      from: `${runtime.url}/app`,
      to: `domain://idm.${runtime.domain}`,
      body,
    });
  }
  const { url, bus } = runtime.addHyperty();
  bus.addListener(url, ({ id, type, from, to, body }) => {
    if (type === "create")
      bus.postMessage({
        id,
        type: "response",
        from: to,
        to: from,
        body: { code: 200, value: body.value },
      });
  });
  const sm = `domain://msg-node.${runtime.domain}/sm`;
  await runtime.bus.request({
    type: "subscribe",
    from: `${runtime.url}/sm`,
    to: sm,
    body: { resources: [url], source: url },
  });

  /** Ask an address so many times, one after the other. */
  async function ask(address, times = 1) {
    const [codes, latencies] = [[], []];
    for (let n = 0; n < times; n += 1) {
      const began = performance.now();
      const message = {
        type: "create",
        from: `${runtime.url}/app`,
        to: address,
        body: { value: { n, text: "grüße" } },
      };
      const body = await runtime.bus
        .request(message)
        .catch((error) => error.body ?? { code: 0, desc: error.message });
      codes.push(body.code === 200 && body.value?.n !== n ? -1 : body.code);
      latencies.push(performance.now() - began);
      if (body.code !== 200) return { codes, latencies, desc: body.desc };
    }
    return { codes, latencies };
  }

  return { url, ask };
}
