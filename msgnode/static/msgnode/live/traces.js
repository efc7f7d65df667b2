/**
 * The page of traces: messages as they pass, one opened with its steps, over the console's socket.
 *
 * A worker tells what it knows of a message (a part); parts of one trace are shown as one. What
 * other workers and responses add is kept for a trace that is known, and forgotten otherwise.
 */

import { link, row, sayer } from "./parts.js";
import { LiveSocket, outdated } from "./socket.js";
import { branch, step } from "./trace_steps.js";
import { count, microseconds, time } from "./words.js";

const KEPT = 300; // traces
const ROWS = 100; // of them in the page: each row costs with every update
const ORPHANS = 500; // parts whose trace is not known yet
const JOINED = new Set(["response", "link"]);

const $ = (selector) => document.querySelector(selector);
const root = $("#traces");
const rows = $("#traces-rows");
const say = sayer($("#traces-state"));
const pause = $("#traces-pause");
const search = $("#traces-search");
const panel = $("#trace");
const wantsOne = Boolean(new URLSearchParams(location.search).get("trace")); // the form sends it empty

const traces = new Map(); // trace id -> {parts, row: null until it is shown}
const ofRow = new WeakMap(); // row -> trace
const untraced = new Map(); // worker -> messages that it has not traced since it started
let orphans = [];
let held = []; // parts that came while paused
let open = null;
let leftOut = 0; // messages that were not traced since this page was opened

const socket = new LiveSocket(root.dataset.socket, {
  opened() {
    socket.say({ length: "traces" });
  },
  text(message) {
    const parts = (message.type === "history" ? message.points : message.traces) ?? [];
    if (pause.getAttribute("aria-pressed") === "true") held = [...held, ...parts].slice(-KEPT);
    else take(parts);
    if (message.type !== "history") say(sentence(message));
  },
  lost(why, isOver) {
    say(outdated(why, isOver));
  },
});

pause.addEventListener("click", () => {
  const isPaused = pause.getAttribute("aria-pressed") !== "true";
  pause.setAttribute("aria-pressed", isPaused);
  pause.textContent = isPaused ? "Go on" : "Pause";
  if (!isPaused) take(held.splice(0));
});
search.addEventListener("input", show);
rows.addEventListener("click", ({ target }) => {
  const row = target.closest("button")?.closest("tr");
  if (!row) return;
  open = ofRow.get(row);
  panel.hidden = false;
  showOpen();
  $("#trace-title").focus();
});
$("#trace-close").addEventListener("click", () => {
  const { row } = open ?? {};
  open = null;
  panel.hidden = true;
  row?.querySelector("button").focus();
});
$("#trace-save").addEventListener("click", () => {
  const text = JSON.stringify(open.parts, null, 2);
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  anchor.download = `trace-${open.parts[0].trace}.json`;
  anchor.click();
  URL.revokeObjectURL(anchor.href);
});

function sentence({ missing, untraced: told, missed }) {
  const newest = traces.size > ROWS ? `, the newest ${ROWS} that match in the table` : "";
  const words = [`${traces.size} traces${newest}`];
  for (const [worker, number] of Object.entries(told)) {
    const before = untraced.get(worker) ?? number; // one that begins anew counts from zero
    leftOut += number >= before ? number - before : number;
    untraced.set(worker, number);
  }
  if (leftOut)
    words.push(
      `${count(leftOut)} messages since you opened this page were not traced, because there were too many`,
    );
  if (missed) words.push(`this page was too slow for ${missed} updates`);
  if (missing?.length) words.push(`${missing.join(", ")} did not answer`);
  return words.join("; ");
}

function take(parts) {
  const waiting = orphans;
  orphans = [];
  const changed = new Set();
  for (const part of [...waiting, ...parts]) {
    const known = traces.get(part.trace);
    if (!known && JOINED.has(part.why) && !wantsOne) {
      orphans.push(part);
      continue;
    }
    const trace = known ?? { parts: [], row: null };
    const key = part.spans[0].id;
    if (trace.parts.some(({ spans }) => spans[0].id === key)) continue;
    trace.parts.push(part);
    trace.parts.sort((one, other) => one.at - other.at);
    traces.set(part.trace, trace);
    changed.add(trace);
  }
  orphans = orphans.slice(-ORPHANS);
  for (const trace of changed) {
    if (!trace.row) continue;
    const hadFocus = trace.row.contains(document.activeElement);
    const row = rowOf(trace);
    trace.row.replaceWith(row);
    trace.row = row;
    if (hadFocus) row.querySelector("button").focus();
  }
  for (const id of traces.keys()) {
    if (traces.size <= KEPT) break;
    traces.delete(id);
  }
  if (changed.size) show();
  if (open && changed.has(open)) showOpen();
}

/** Have the newest traces that match the search in the table, each with the row that it had. */
function show() {
  const term = search.value.trim().toLowerCase();
  const matches = (trace) => !term || JSON.stringify(trace.parts).toLowerCase().includes(term);
  const shown = new Set([...traces.values()].reverse().filter(matches).slice(0, ROWS));
  if (!shown.size && !rows.querySelector("button")) return; // what says that there is none stays
  for (const row of [...rows.rows]) {
    const trace = ofRow.get(row);
    if (shown.has(trace)) continue;
    row.remove();
    if (trace) trace.row = null;
  }
  let place = rows.firstElementChild;
  for (const trace of shown) {
    if (trace.row && trace.row === place) {
      place = place.nextElementSibling;
      continue;
    }
    trace.row ??= rowOf(trace);
    rows.insertBefore(trace.row, place);
  }
}

function rowOf(trace) {
  const [part] = trace.parts;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "text-link";
  button.append(time(part.at));
  button.setAttribute("aria-label", `Open ${part.type} to ${part.to}`);
  const outcome = `${part.spans[0].is_error ? "▲ " : ""}${part.outcome}${part.code ? ` (${part.code})` : ""}`;
  const took = microseconds(part.seconds * 1e6);
  const made = row(
    [button, part.type, part.sender, part.to, outcome, took, part.rule],
    ["", "", "", "", "", "console-right"],
  );
  ofRow.set(made, trace);
  return made;
}

function showOpen() {
  const { parts } = open;
  const [first] = parts;
  $("#trace-title").textContent = `${first.type} from ${first.sender} to ${first.to}`;
  const about = $("#trace-about");
  about.replaceChildren("Trace ", link(first.trace, `?trace=${first.trace}`), `, ${reason(first)}`);
  if (first.user) about.append(`; user ${first.user}`);
  if (first.session)
    about.append("; ", link("session", `${root.dataset.session}${first.session}/change/`));
  if (first.rule && root.dataset.decisions) {
    const query = new URLSearchParams({ q: first.rule, session: first.session });
    about.append("; ", link(`decisions of ${first.rule}`, `${root.dataset.decisions}?${query}`));
  }
  $("#trace-steps").replaceChildren(
    ...parts.flatMap((part) => part.spans.map((span, index) => step(part, span, index, first.at))),
  );
  const tree = parts.find((part) => part.tree)?.tree ?? [];
  const places = tree.map(branch);
  if (places.length)
    places.unshift(
      Object.assign(document.createElement("h3"), { textContent: "Why the policies decided so" }),
    );
  $("#trace-tree").replaceChildren(...places);
  const message = {
    id: parsed(first.id),
    type: first.type,
    from: first.sender,
    to: first.to,
    body: first.body ?? {},
  };
  $("#trace-message").textContent =
    first.body === null
      ? "The body is not stored, because it is long or opens a session."
      : JSON.stringify(message, null, 2);
  const form = $("#trace-try");
  if (form) form.elements.take.value = JSON.stringify(message);
}

function parsed(id) {
  try {
    return JSON.parse(id);
  } catch {
    return 0;
  }
}

function reason({ why, worker }) {
  const words = {
    sender: "because its sender traces it",
    sampled: "sampled",
    watched: "watched in the console",
    response: "the response to a traced request",
    link: "traced by another worker",
  };
  return `${words[why] ?? why}, recorded by ${worker}`;
}
