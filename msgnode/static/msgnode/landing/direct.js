/**
 * A talk of two browsers over a channel of their own; the node is how they meet, and the way where there is none.
 *
 * Nothing runs until the visitor waits for somebody, or comes with the link of one who does (`#direct=<handler>`,
 * the address at which a runtime takes invitations).
 */

import { Runtime } from "../runtime/index.js";
import { element } from "./pane.js";

const $ = (selector) => document.querySelector(`#direct ${selector}`);
const { domain } = document.body.dataset;
const PREFIX = "#direct=";
const HANDLER = "/p2phandler/";
const MOST_LINES = 50;

const WAYS = {
  created: "setting up",
  "in-progress": "setting up",
  live: "direct",
  disconnected: "through the node",
  failed: "through the node",
};

let runtime;
let url; // ours
let other = ""; // the other side's
let wanted = {}; // what has a channel set up: its handler
const counts = { direct: 0, node: 0 };

$("#direct-start").disabled = false;
$("#direct-start").addEventListener("click", () => enter(wait));
const invited = location.hash.startsWith(PREFIX)
  ? decodeURIComponent(location.hash.slice(PREFIX.length))
  : "";
if (invited) enter(() => join(invited));

async function enter(open) {
  $("#direct-start").disabled = true;
  say("Connecting …");
  try {
    runtime = new Runtime({ domain, catalogues: { [domain]: location.origin }, p2p: {} });
    url = `${runtime.url}/talk`;
    runtime.bus.addListener(url, hear);
    runtime.bus.addListener(`${runtime.url}/status`, ({ body }) => body.peer && showWay(body));
    await runtime.logIn();
    await open();
    $("#direct-start").hidden = true;
  } catch (error) {
    await runtime?.close();
    [other, wanted] = ["", {}];
    $("#direct-line").hidden = true;
    say(
      error.code === 404
        ? "Nobody waits there any more. You can wait for somebody yourself."
        : `That did not work: ${error.message}`,
    );
    $("#direct-start").disabled = false;
  }
}

/** The first browser: it can be invited. */
function wait() {
  if (!runtime.p2p) throw new Error("this browser does not support WebRTC.");
  $("#direct-link").href = `${location.origin}/${PREFIX}${encodeURIComponent(runtime.p2p.handler)}`;
  $("#direct-link").hidden = false;
  say("Open the link in another tab, or in another browser.");
}

/** The second one: its first message goes through the node, and wants a channel. */
async function join(handler) {
  const end = handler.indexOf(HANDLER);
  if (end < 0) throw new Error("the link does not contain a runtime URL.");
  wanted = { p2p: true, p2pHandler: handler };
  meet(`${handler.slice(0, end)}/talk`);
  await send("Hello.");
}

function meet(address) {
  other = address;
  $("#direct-whom").textContent = `with ${address.split("/")[3].slice(0, 8)}`;
  $("#direct-link").hidden = true;
  $("#direct-line").hidden = false;
  if ($("#direct-way").dataset.state === "created") showWay({ value: "disconnected" });
  say("");
}

async function send(text) {
  await runtime.bus.request({
    type: "create",
    from: url,
    to: other,
    body: { value: { text }, ...wanted },
  });
  show("You", text);
}

function hear({ id, type, from, to, body }) {
  if (type !== "create") return;
  if (!other) meet(from);
  const isDirect = body.via.includes("/p2prequester/");
  counts[isDirect ? "direct" : "node"] += 1;
  $("#direct-count").textContent =
    `${counts.direct} received directly, ${counts.node} through the node`;
  show(
    from === other ? "The other" : "Somebody else",
    String(body.value?.text),
    isDirect ? "direct" : "through the node",
  );
  runtime.bus.postMessage({ id, type: "response", from: to, to: from, body: { code: 200 } });
}

function show(who, text, way = "") {
  const row = element("li");
  row.append(element("b", `${who}: `), text);
  if (way) row.append(element("small", ` · ${way}`));
  $("#direct-lines").append(row);
  if ($("#direct-lines").children.length > MOST_LINES)
    $("#direct-lines").firstElementChild.remove();
}

/** Which way messages take now. */
function showWay({ value }) {
  $("#direct-way").dataset.state = value === "failed" ? "disconnected" : value;
  $("#direct-way").textContent = WAYS[value] ?? value;
}

$("#direct-line").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("#direct-text").value.trim();
  if (!text) return;
  event.target.reset();
  send(text).catch(({ message }) => say(`“${text}” did not arrive: ${message}`));
});

function say(text) {
  $("#direct-says").textContent = text;
}

addEventListener("pagehide", () => runtime?.close());
