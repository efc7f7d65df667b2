/**
 * Alice and Bob are of two domains: each step of the first message, from the address to the answer.
 *
 * Alice's runtime is at home at this node, Bob's at the other one, which `?with=<domain>@<origin>` names. Both load
 * that node's protostub into a sandbox: Bob because this page trusts its own node alone, Alice because she sends to
 * an address of the other domain.
 */

import { Runtime } from "../runtime/index.js";
import { element } from "./pane.js";

const $ = (selector) => document.querySelector(`#two-domains ${selector}`);
const { domain, otherDomain, otherOrigin } = document.body.dataset;
const catalogues = { [domain]: location.origin, [otherDomain]: otherOrigin };
const sandboxPage = "/static/msgnode/runtime/sandbox/frame.html";

let alice;
let bob;
let said = 0;

// what `make second` starts beside a node that was started by `make run`
$("#other-node").value =
  `second.${domain}@${location.protocol}//${location.hostname}:${Number(location.port || 80) + 1}`;
$("#other").addEventListener("submit", (event) => {
  event.preventDefault();
  location.assign(`/?with=${encodeURIComponent($("#other-node").value.trim())}#two-domains`);
});
if (otherOrigin) begin().catch(({ message }) => fail(message));

async function begin() {
  $("#missing").hidden = true;
  $("#crossing").hidden = false;
  bob = new Runtime({ domain: otherDomain, catalogues, sandbox: "all", sandboxPage });
  alice = new Runtime({ domain, catalogues, sandboxPage, fetch: watched });
  alice.bus.addListener(`${alice.url}/status`, ({ body }) => status(body));
  step("Two runtimes are being opened in this page.");
  await Promise.all([alice.logIn(), bob.logIn()]);
  const to = `domain://msg-node.${otherDomain}/address-allocation`;
  const ask = {
    type: "create",
    from: `${bob.url}/sm`,
    to,
    body: { scheme: "hyperty", value: { number: 1 } },
  };
  const { value } = await bob.bus.request(ask);
  const { url, bus } = bob.addHyperty(value.allocated[0]);
  bus.addListener(url, (message) => hear(bus, message));
  step(
    `Alice belongs to ${domain}. Bob belongs to ${otherDomain}, which allocated the address ${url} for his hyperty.`,
  );
  $("#hello").addEventListener("submit", (event) => {
    event.preventDefault();
    say(url).catch(({ message }) => fail(message));
  });
  for (const field of $("#hello").elements) field.disabled = false;
}

/** Alice to Bob, by his address alone. */
async function say(to) {
  const { text, send } = $("#hello").elements;
  send.disabled = true;
  const began = performance.now();
  said += 1;
  const isFirst = said === 1;
  if (isFirst)
    step(
      `${to} is not in Alice’s runtime, and she has no stub for ${otherDomain}. Her runtime looks for one.`,
    );
  try {
    const body = { value: { text: text.value } };
    const answer = await alice.bus.request({
      type: "create",
      from: `${alice.url}/hello`,
      to,
      body,
    });
    const took = `${(performance.now() - began).toFixed(0)} ms`;
    step(
      `“${answer.value.text}” comes back to Alice after ${took}${isFirst ? ", including the loading of the stub" : "; the stub was already loaded"}.`,
      true,
    );
  } finally {
    send.disabled = false;
  }
}

function hear(bus, { id, type, from, to, body }) {
  if (type !== "create") return;
  $("#bob-heard").textContent = body.value.text;
  step(
    `The node of ${otherDomain} delivers “${body.value.text}” to Bob. It came from ${from}, a visitor.`,
  );
  bus.postMessage({
    id,
    type: "response",
    from: to,
    to: from,
    body: { code: 200, value: { text: `Hello from ${otherDomain}` } },
  });
}

/** Alice's runtime asks catalogues with this. */
async function watched(url, options) {
  const answer = await fetch(url, options);
  if (url.startsWith(otherOrigin)) {
    step(
      `The runtime asks the catalogue of ${otherDomain}: ${options.method ?? "GET"} ${new URL(url).pathname}, ${answer.status}.`,
    );
  }
  return answer;
}

/** What the other domain's stub says of itself in Alice's runtime. */
function status({ resource = "", value, desc }) {
  const entry = alice.stubs.get(otherDomain);
  if (!entry?.url || resource !== entry.url) return;
  const told = STATUS[value];
  if (told) step(`${told(entry)}${desc ? ` (${desc})` : ""}`);
}

const STATUS = {
  created: ({ descriptor, digest }) =>
    `The source of the stub matches the digest in its descriptor (${digest.slice(0, 12)}…). It runs in a sandbox: a hidden frame without storage, which may connect to ${new URL(descriptor.configuration.url).host} and nowhere else.`,
  "in-progress": () => `The stub connects to the node of ${otherDomain}.`,
  live: () => `Alice has a session there, as a visitor. The waiting messages are sent in order.`,
  disconnected: () =>
    "The stub has lost its connection or was idle; it reconnects for the next message.",
  failed: () => "The stub has failed",
};

function step(text, isEnd = false) {
  const row = element("li", text, isEnd ? "end" : "");
  $("#steps").append(row);
  row.scrollIntoView({ block: "nearest" });
}

function fail(text) {
  const failure = $("#two-failure");
  failure.textContent = `${text} Is the other node running, at ${otherOrigin}?`;
  failure.hidden = false;
}

addEventListener("pagehide", () => {
  alice?.close();
  bob?.close();
});
