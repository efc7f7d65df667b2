/** Loads of the JavaScript runtime, the same in Node.js and in a browser's page. */

const text = (length) => "x".repeat(length);

/** Messages a second within a MessageBUS, each copied when posted and once more for all listeners but one. */
export async function bus({ MessageBus }, { listeners, size, seconds }) {
  const bus = new MessageBus("runtime://d/1");
  let heard = 0;
  for (let n = 0; n < listeners; n += 1) bus.addListener("comm://d/o", () => (heard += 1));
  const body = { resource: "comm://d/o", version: 1, value: { text: text(size), list: [1, 2, 3] } };
  const message = { type: "update", from: "comm://d/a", to: "comm://d/o", body };
  const began = performance.now();
  let posted = 0;
  while (performance.now() - began < seconds * 1000) {
    for (let n = 0; n < 200; n += 1) bus.postMessage(message);
    posted += 200;
    await null; // the queue is emptied
    if (posted % 20_000 === 0) await new Promise((resolve) => setTimeout(resolve));
  }
  while (heard < posted * listeners) await new Promise((resolve) => setTimeout(resolve));
  return { rate: (posted / (performance.now() - began)) * 1000 };
}

/** Requests a second, each answered before the next is posted. */
export async function requests({ MessageBus }, { size, seconds }) {
  const bus = new MessageBus("runtime://d/1");
  bus.addListener("comm://d/o", ({ id, from, to }) =>
    bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200 } }),
  );
  const message = { type: "read", from: "comm://d/a", to: "comm://d/o", body: { value: text(size) } };
  const began = performance.now();
  let answered = 0;
  while (performance.now() - began < seconds * 1000) {
    for (let n = 0; n < 100; n += 1) await bus.request(message);
    answered += 100;
    await new Promise((resolve) => setTimeout(resolve));
  }
  return { rate: (answered / (performance.now() - began)) * 1000 };
}

/** Milliseconds from the first message to a foreign domain until its stub is live, nothing being loaded. */
export async function cold({ Runtime }, { domain, foreign, catalogues }) {
  const runtime = new Runtime({ domain, catalogues });
  runtime.bus.onError(() => {});
  const live = new Promise((resolve) =>
    runtime.bus.addListener(`${runtime.url}/status`, ({ body }) => body.value === "live" && resolve()),
  );
  const began = performance.now();
  runtime.bus.postMessage({ type: "create", from: `${runtime.url}/app`, to: `hyperty://${foreign}/nobody`, body: {} });
  await live;
  const took = performance.now() - began;
  await runtime.close();
  return { ms: took };
}

const STUB = (harm) => `
export function activate(url, bus) {
  bus.postMessage({ type: "update", from: url, to: url + "/status", body: { value: "created" } });
  bus.addListener("*", ({ id, type, from, to }) => {
    if (type !== "response") bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200 } });
    ${harm}
  });
  return { instance: {} };
}`;
const HARM = {
  nothing: "",
  loop: "for (;;);",
  memory: "const all = []; for (;;) all.push(new Array(100000).fill(Math.random()));",
  flood: `const more = () => { for (let n = 0; n < 2000; n += 1)
    bus.postMessage({ type: "create", from: "hyperty://f/x", to: "hyperty://d/flooded", body: {} }); setTimeout(more); }; more();`,
};

/** The 99th percentile of the latency of a conversation with a good stub in a sandbox, while another stub does harm in its own. */
export async function beside({ Runtime }, { harm, seconds }) {
  const fetch = async (url) => {
    const { host } = new URL(url);
    const source = STUB(host === "f" ? HARM[harm] : "");
    const sourcePackage = { encoding: "utf-8", sourceCode: source };
    const entry = { cguid: host, version: "1", objectName: "Stub", type: "PROTOSTUB", language: "javascript", sourcePackage };
    return new Response(JSON.stringify(entry));
  };
  const runtime = new Runtime({ domain: "d", fetch });
  runtime.bus.onError(() => {});
  runtime.bus.addListener("hyperty://d/flooded", () => {});
  const ask = (domain) => runtime.bus.request({ type: "create", from: "hyperty://d/a", to: `hyperty://${domain}/x`, body: {} });
  await ask("g");
  ask("f").catch(() => {});
  const latencies = [];
  const began = performance.now();
  while (performance.now() - began < seconds * 1000) {
    const asked = performance.now();
    await ask("g");
    latencies.push(performance.now() - asked);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await runtime.close();
  latencies.sort((one, other) => one - other);
  return { ms: latencies[Math.floor(latencies.length * 0.99)], p50_ms: latencies[latencies.length >> 1] };
}
