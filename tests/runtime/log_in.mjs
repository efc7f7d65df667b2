/**
 * A runtime that logs in, for tests: in Node.js, and imported by a page.
 *
 * Usage: node log_in.mjs OPTIONS    (JSON for the Runtime; `issuer`, or an `identity` that is refused)
 */

/** What a test orders of a runtime that has logged in. */
export async function orders(runtime, states) {
  const me = await runtime.hyperty("me", { handlers: (value) => value });
  const subscribe = {
    type: "subscribe",
    from: `${runtime.url}/sm`,
    to: `domain://msg-node.${runtime.domain}/sm`,
    body: { resources: [me.url], source: me.url },
  };
  const all = {
    ask: async () => {
      await runtime.bus.request(subscribe); // the node lets it pass
      return { answer: await me.request(me.url, "hello") };
    },
    logOut: () => runtime.logOut(),
    anonymous: () =>
      runtime.bus.request(subscribe).then(
        () => ({ refused: "" }),
        ({ message }) => ({ refused: message }),
      ),
  };
  return async (what) => {
    const said = await all[what]?.();
    return { user: runtime.user, states, ...said };
  };
}

async function main({ issuer, identity, ...options }) {
  const { createInterface } = await import("node:readline");
  const { Runtime } = await import("../../msgnode/runtime/js/src/node.js");
  const { openid } = await import("../../msgnode/runtime/js/src/openid.js");
  const runtime = new Runtime(options);
  const say = (what) => console.log(JSON.stringify(what));
  const states = [];
  runtime.onIdentity(({ state }) => states.push(state));
  runtime.bus.onError(() => {});
  if (identity) {
    await runtime.logIn(identity).catch(({ code, message }) => say({ code, message }));
  } else {
    const open = (url) => say({ open: url });
    await runtime.logIn(openid({ issuer, clientId: "native", open }));
    const order = await orders(runtime, states);
    for await (const line of createInterface({ input: process.stdin }))
      say(await order(JSON.parse(line).do));
  }
  await runtime.close();
}

if (globalThis.process) await main(JSON.parse(process.argv[2]));
