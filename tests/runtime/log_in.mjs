/**
 * A Node.js runtime that logs in, for tests.
 *
 * Usage: node log_in.mjs OPTIONS    (JSON for the Runtime; `issuer`, or an `identity` that is refused)
 */

import { createInterface } from "node:readline";
import { Runtime } from "../../msgnode/runtime/js/src/node.js";
import { openid } from "../../msgnode/runtime/js/src/openid.js";

const { issuer, identity, ...options } = JSON.parse(process.argv[2]);
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
  const me = await runtime.hyperty("me", { handlers: (value) => value });
  const sm = `domain://msg-node.${options.domain}/sm`;
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: what } = JSON.parse(line);
    const said = { user: runtime.user, states };
    const subscribe = {
      type: "subscribe",
      from: `${runtime.url}/sm`,
      to: sm,
      body: { resources: [me.url], source: me.url },
    };
    if (what === "ask") {
      await runtime.bus.request(subscribe); // the node lets it pass
      said.answer = await me.request(me.url, "hello");
    } else if (what === "logOut") {
      await runtime.logOut();
      Object.assign(said, { user: runtime.user });
    } else if (what === "anonymous") {
      said.refused = await runtime.bus.request(subscribe).then(
        () => "",
        ({ message }) => message,
      );
    }
    say(said);
  }
}
await runtime.close();
