/**
 * The playground of runtimes: opens them, composes what they say, shows and explains what passes.
 *
 * A message that was sent is explained by the trace of its session: how it was admitted, decided and
 * routed, and who was handed it.
 */

import { Composer } from "./composer.js";
import { button } from "./parts.js";
import { Passed } from "./passed_frames.js";
import { RuntimeLine } from "./runtime_line.js";
import { LiveSocket } from "./socket.js";

const MOST = 4;

const $ = (selector) => document.querySelector(selector);
const facts = JSON.parse($("#runtimes-facts").textContent);
const lines = [];
const watches = new Map(); // line -> {socket, isTracing, why}
const passed = new Passed($("#passed"), facts, (line, message) => composer.answer(line, message));
const composer = new Composer(
  facts,
  () => lines,
  (line, message) => line.send(message),
);
let number = 0;

$("#runtime-open").addEventListener("click", () => {
  const url = `runtime://${facts.domain}/playground-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  number += 1;
  const line = new RuntimeLine(`Runtime ${number}`, url, $("#runtime-credential").value.trim(), {
    frame: (from, isOut, message) => passed.add(from, isOut, message),
    changed: () => queueMicrotask(show),
  });
  lines.push(line);
  watch(line);
  show();
});
$("#passed-clear").addEventListener("click", () => passed.clear());
addEventListener("pagehide", () => lines.forEach((line) => line.close()));
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
show();

/** Ask for the traces of what this runtime sends, as long as it is there. */
function watch(line) {
  const known = { socket: null, isTracing: false, why: "" };
  known.socket = new LiveSocket(`${facts.traces}?session=${encodeURIComponent(line.url)}`, {
    opened() {},
    text({ traces = [] }) {
      passed.explain(traces);
      if (!known.isTracing) {
        Object.assign(known, { isTracing: true, why: "" });
        show();
      }
    },
    lost(why) {
      Object.assign(known, { isTracing: false, why });
      show();
    },
  });
  watches.set(line, known);
}

function show() {
  for (const line of [...lines]) {
    if (line.state !== "closed") continue;
    lines.splice(lines.indexOf(line), 1);
    watches.get(line).socket.close();
    watches.delete(line);
  }
  const focused = document.activeElement?.dataset?.key;
  $("#runtime-list").replaceChildren(
    ...(lines.length
      ? lines.map(row)
      : [Object.assign(document.createElement("li"), { textContent: "No runtime is open." })]),
  );
  if (focused) document.querySelector(`#runtime-list [data-key="${focused}"]`)?.focus();
  $("#runtime-open").disabled = lines.length >= MOST;
  const lost = [...watches.values()].find(({ why }) => why);
  $("#passed-state").textContent = lost ? `messages are not explained: ${lost.why}` : "";
  composer.lines();
}

function row(line) {
  const { isTracing } = watches.get(line);
  const item = document.createElement("li");
  item.dataset.state = line.state;
  item.dataset.tracing = isTracing;
  const name = Object.assign(document.createElement("strong"), { textContent: line.name });
  const url = Object.assign(document.createElement("code"), {
    textContent: line.url,
    className: "console-wrap",
  });
  const state = document.createElement("span");
  state.textContent = `${line.state}${line.why ? `: ${line.why}` : ""}`;
  item.append(name, url, state);
  if (line.isOpen)
    item.append(
      act(line, "Drop the connection", () => line.drop()),
      act(line, "Close the session", () => line.close()),
    );
  if (line.state === "dropped")
    item.append(
      act(line, "Reconnect", () => line.comeBack()),
      act(line, "Forget it", () => line.close()),
    );
  if (line.state === "failed") item.append(act(line, "Forget it", () => line.close()));
  return item;
}

function act(line, text, does) {
  const made = button(text, does);
  made.dataset.key = `${line.name} ${text}`;
  made.setAttribute("aria-label", `${text}: ${line.name}`);
  return made;
}
