/** What a runtime does in any browser, with two runtimes in one page: each step with what came of it. */

import { mountPanel } from "../../msgnode/runtime/js/src/panel.js";
import { Runtime } from "../../msgnode/runtime/js/src/index.js";
import { Syncher } from "../../msgnode/runtime/js/src/syncher/index.js";

const ECHO = `export function activate(url, bus) {
  bus.addListener(url, ({ id, type, from, to, body }) => type === "create" &&
    bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200, value: [body.value, self.origin] } }));
}`;
const LIMIT = 30_000;

/** @param home the URL of the node; `name`: for whom one is registered */
export async function steps(home, name) {
  const options = { domain: "localhost", catalogues: { localhost: home }, p2p: {} };
  const [one, other] = [new Runtime(options), new Runtime(options)];
  try {
    await Promise.all([one.logIn(), other.logIn()]);
    const handlers = { create: (value) => value, read: () => board.url };
    const echo = await one.hyperty("echo", { register: name, handlers });
    const board = await new Syncher(echo).create({ lines: ["one"] });
    const [me, unregistered] = await Promise.all([
      other.hyperty("me", { p2p: true }),
      other.hyperty("unregistered", { register: false }),
    ]);
    const [found] = await other.find({ user: name });
    const answer = await me.request(found, "hello");
    const copy = await new Syncher(me).subscribe(
      await me.request(found, undefined, { type: "read" }),
    );
    const changed = new Promise((resolve) => copy.onChange(resolve));
    board.data.lines.push("two");
    await inTime(changed, "a change");
    await copy.addChild("three");
    const children = board.children.map(({ value }) => value);
    return {
      request: [found === echo.url, answer],
      object: [[...copy.data.lines], children],
      sandbox: await inSandbox(one),
      direct: await directly(other, me, found),
      unregistered: await unregistered.request(found, "through the node, beside a channel"),
      panel: await onPanel(other),
    };
  } finally {
    await Promise.all([one.close(), other.close()]);
  }
}

/** What a hyperty in a sandbox has. */
async function inSandbox(runtime) {
  const { url } = await runtime.deployHyperty(ECHO);
  const from = `${runtime.url}/tester`;
  return (await runtime.bus.request({ type: "create", from, to: url, body: { value: 7 } })).value;
}

/** Which way messages take once there was time for a channel, and why. */
async function directly(runtime, me, to) {
  const end = performance.now() + LIMIT;
  while (runtime.p2p && runtime.explain(to).way !== "channel" && performance.now() < end)
    await me.request(to, "are we direct?");
  const { way, why } = runtime.explain(to);
  return [await me.request(to, "directly"), way, why];
}

async function onPanel(runtime) {
  const place = document.body.appendChild(document.createElement("div"));
  const panel = mountPanel(runtime, place);
  await panel.refresh();
  const pill = place.shadowRoot.querySelector(".state");
  const found = [pill.textContent, getComputedStyle(pill).display];
  panel.remove();
  return found;
}

function inTime(promise, what) {
  const late = (_, reject) => setTimeout(() => reject(new Error(`${what} did not come`)), LIMIT);
  return Promise.race([promise, new Promise(late)]);
}
