/** Compiled, never run: what an author of an application may write, and what the types refuse. */

import { AnswerError, LoadError, MessageBus, MiniBus, Refusal, Runtime, newId, type Handler, type Message } from "msgnode-runtime";
import { openid } from "msgnode-runtime/openid";
import { PolicyEngine, policyHandler } from "msgnode-runtime/policies";
import { activate } from "msgnode-runtime/protostub";
import { Syncher } from "msgnode-runtime/syncher";

export async function application(): Promise<string> {
  const runtime = new Runtime({
    domain: "example.org",
    catalogues: { "example.org": "http://127.0.0.1:8000" },
    routing: { "other.example": "node" },
    limits: { rate: 500, rateBytes: 1_000_000 },
    sandboxPage: "https://*.sandbox.example.org/frame.html",
  });
  const entry = await runtime.logIn({ accessToken: "x" });
  if (entry.status !== "live") throw new LoadError(503, entry.desc);
  const echo = await runtime.hyperty("echo", { register: "bob", handlers: { create: (value) => value } });
  const [bob = ""] = await runtime.find({ user: "bob", resources: ["chat"] });
  const said: string = await echo.request<string>(bob, "hello", { p2p: true });
  if (runtime.explain(bob).way === "none") throw new Refusal(404, said);
  new Syncher(echo);
  (await runtime.graph).addUserId("bob", runtime.version);
  const { url, bus } = runtime.addHyperty();
  bus.addListener(url, ({ id, from, to, body }: Message<{ value: number }>) =>
    bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200, value: body?.value } }),
  );
  const check: Handler = (message, { direction }) => (direction === "in" ? message : { code: 403, desc: "No." });
  runtime.bus.pipelineOut.use(check).remove();
  runtime.bus.pipelineIn.use(policyHandler(new PolicyEngine([])));
  try {
    const { code, value } = await runtime.bus.request<{ value: string }>({ type: "read", from: url, to: "comm://d/o" });
    return `${code.toFixed()} ${value.trim()} ${newId()}`;
  } catch (error) {
    if (error instanceof AnswerError) return String(error.code);
    throw error;
  } finally {
    await runtime.close();
  }
}

const bus = new MiniBus((message) => new MessageBus("runtime://d/1").postMessage(message));
activate("runtime://d/protostub/1", bus, { url: "wss://d/ws", runtimeURL: "runtime://d/1" }).instance.disconnect();

// @ts-expect-error a runtime needs a domain
new Runtime({});
// @ts-expect-error a token is a text
new Runtime({ domain: "d" }).logIn({ accessToken: 1 });
new Runtime({ domain: "d" }).logIn(openid({ issuer: "https://d/o", clientId: "app" }));
new Runtime({ domain: "d" }).onIdentity(({ state, user }) => state === "renewed" && user.trim()).remove();
// @ts-expect-error a handler is for a type that there is
new Runtime({ domain: "d" }).hyperty("echo", { handlers: { created: () => 1 } });
// @ts-expect-error somebody is looked for
new Runtime({ domain: "d" }).find({ resources: ["chat"] });
// @ts-expect-error a route is one of two words
new Runtime({ domain: "d", routing: { f: "elsewhere" } });
// @ts-expect-error a message has a sender
bus.postMessage({ type: "read", to: "comm://d/o" });
// @ts-expect-error a stub needs the URL of its node
activate("runtime://d/protostub/1", bus, { runtimeURL: "runtime://d/1" });
