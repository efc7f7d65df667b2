/** A runtime in this page, the panel that shows it, and a form that has it look for somebody and ask him. */

import { Runtime } from "../runtime/index.js";
import { mountPanel } from "../runtime/panel.js";
import { whoIsHere } from "./login.js";
import { element } from "./pane.js";

const $ = (selector) => document.querySelector(selector);
const { domain, otherDomain, otherOrigin } = document.body.dataset;
const catalogues = {
  [domain]: location.origin,
  ...(otherOrigin ? { [otherDomain]: otherOrigin } : {}),
};
const sandboxPage = "/static/msgnode/runtime/sandbox/frame.html";
const runtime = new Runtime({ domain, catalogues, sandboxPage, p2p: {} });
const panel = mountPanel(runtime, $("#panel"));
let me;

attempt(async () => {
  const person = await whoIsHere();
  await runtime.logIn(...(person ? [{ accessToken: person.token }] : []));
  me = await runtime.hyperty("visitor", {
    register: false,
    handlers: { read: () => "A visitor of the page /runtime." },
  });
  for (const each of document.querySelectorAll("#find [disabled]")) each.disabled = false;
  say("Connected.");
});

$("#find").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => find($("#user").value.trim()));
});

async function find(user) {
  $("#found").replaceChildren();
  say("Asking the registry …");
  const all = await runtime.find({ user });
  say(all.length ? `Found: ${all.length}.` : `${user} has no hyperty that can be reached now.`);
  $("#found").replaceChildren(...all.map(row));
}

/** An address, with what can be done about it. */
function row(address) {
  const [item, explain, read] = [element("li"), button("Explain"), button("Ask: read")];
  explain.addEventListener("click", () => panel.explain(address));
  read.addEventListener("click", () =>
    attempt(async () => {
      say("Asking …");
      const value = await me.request(address, undefined, { type: "read" });
      say(`It answered ${JSON.stringify(value) ?? "without a value"}.`);
    }),
  );
  item.append(element("code", address), " ", explain, " ", read);
  return item;
}

function button(text) {
  return Object.assign(element("button", text), { type: "button" });
}

async function attempt(action) {
  try {
    await action();
  } catch (error) {
    say(`That did not work: ${error.message}`);
  }
}

function say(text) {
  $("#says").textContent = text;
}

addEventListener("pagehide", () => runtime.close());
