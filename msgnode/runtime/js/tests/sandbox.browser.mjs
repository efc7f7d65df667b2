/**
 * The sandbox of a browser: cases R40, R42, R43, R45, R47 of the runtime, with real frames and workers;
 * with frames that are served, where `globalThis.sandboxPage` says from where.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Runtime } from "../src/index.js";
import * as hostile from "./hostile.mjs";
import {
  answer,
  beside,
  cases,
  create,
  entry,
  flood,
  heard,
  pause,
  runtime,
  use,
} from "./sandboxes.mjs";
import { descriptorOf, until } from "./world.mjs";

/** Catalogues come from the test; what sandboxes load does not pass here. */
function begin(stubs, options = {}, changes = {}) {
  const fetch = async (url) => {
    const domain = new URL(url).host;
    if (!stubs[domain]) return new Response("", { status: 404 });
    return Response.json({ ...(await descriptorOf(domain, stubs[domain])), ...changes });
  };
  const { sandboxPage } = globalThis;
  use(new Runtime({ domain: "d", fetch, ...(sandboxPage ? { sandboxPage } : {}), ...options }));
}

cases(begin, "a worker");

test("a stub that needs a window runs in the frame", async () => {
  const source = hostile.GOOD.replace("value: message.body", "value: typeof RTCPeerConnection");
  begin({ g: source }, {}, { constraints: { windowSandbox: true } });
  assert.equal((await answer(create("hyperty://g/x"))).value, typeof RTCPeerConnection);
});

test("R42 a stub in a worker reaches no other host, no storage, no page", async () => {
  await beside(begin, hostile.REACHES_IN_A_BROWSER, {}, async () => {
    const reports = heard("hyperty://d/report");
    const target = `${location.origin}/secret`;
    runtime.bus.postMessage(
      create("hyperty://f/x", { target, socketTarget: target.replace("http", "ws") }),
    );
    await until(() => reports.length, "the report", 30_000);
    const { via: _, ...tried } = reports[0].body;
    assert.equal(Object.keys(tried).length, 9);
    assert.deepEqual(
      Object.entries(tried).filter(([, result]) => result === "done"),
      [],
    );
  });
});

test("R42 a stub in a frame reaches no other host, no storage, no page", async () => {
  begin({ f: hostile.REACHES_IN_A_BROWSER }, {}, { constraints: { windowSandbox: true } });
  const reports = heard("hyperty://d/report");
  const target = `${location.origin}/secret`;
  runtime.bus.postMessage(
    create("hyperty://f/x", { target, socketTarget: target.replace("http", "ws") }),
  );
  await until(() => reports.length, "the report", 30_000);
  const { via: _, ...tried } = reports[0].body;
  assert.deepEqual(
    Object.entries(tried)
      .filter(([, result]) => result === "done")
      .map(([name]) => name),
    typeof RTCPeerConnection === "function" ? ["webrtc"] : [],
  );
});

test("a stub in a frame that goes to another page is ended, and nothing is learnt there", async () => {
  const leaves = hostile.GOOD.replace(
    "if (message.type",
    'location.href = "about:blank?" + JSON.stringify(message); if (message.type',
  );
  begin(
    { f: leaves },
    { times: { leastRestart: 60_000 } },
    { constraints: { windowSandbox: true } },
  );
  runtime.bus.postMessage(create("hyperty://f/x"));
  await until(() => entry("f")?.status === "disconnected", "its end", 30_000);
  assert.match(entry("f").desc, /another page/);
});

test("R45 a message to the window in a valid shape is nobody's", async () => {
  begin({ g: hostile.GOOD });
  await answer(create("hyperty://g/x"));
  const reports = heard("hyperty://d/report");
  const message = {
    id: 1,
    type: "create",
    from: "hyperty://g/x",
    to: "hyperty://d/report",
    body: {},
  };
  for (const frame of [message, { url: entry("g").url, message }, { message }])
    window.postMessage(frame, "*");
  const other = document.createElement("iframe");
  other.setAttribute("sandbox", "allow-scripts");
  other.srcdoc = `<script>parent.postMessage(${JSON.stringify({ url: entry("g").url, message })}, "*");</script>`;
  const arrived = new Promise((resolve) =>
    addEventListener("message", ({ origin }) => origin === "null" && resolve()),
  );
  document.body.append(other);
  await arrived;
  await pause(20);
  other.remove();
  assert.deepEqual(reports, []);
});

test("a stub that floods with buffers gets no more through than its share", () =>
  flood(begin, "new ArrayBuffer(500_000)"));

test("a stub cannot take the port away from the inside", async () => {
  const thief = `${hostile.GOOD}
    const seen = [];
    const original = MessagePort.prototype.postMessage;
    MessagePort.prototype.postMessage = function (...all) { seen.push(this); return original.apply(this, all); };
    self.postMessage?.({ url: "runtime://x", message: {} });`;
  const source = thief.replace("value: message.body", "value: seen.length");
  begin({ g: source });
  assert.equal((await answer(create("hyperty://g/x"))).value, 0);
});

test("R54 a closed runtime leaves no frame behind", async () => {
  begin({ g: hostile.GOOD });
  await answer(create("hyperty://g/x"));
  assert.equal(document.querySelectorAll("iframe[sandbox='allow-scripts']").length, 1);
  await runtime.close();
  assert.equal(document.querySelectorAll("iframe").length, 0);
});
