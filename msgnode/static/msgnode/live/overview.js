/**
 * The overview: what the node does now, over the console's socket.
 *
 * - Figures, lights, tables and charts move each second; *Pause* holds them.
 * - The lists below (policies, components) are read again every half minute; while the socket is lost,
 *   every ten seconds with all that the page has.
 * - A worker that was there and is heard of no more stays for a minute, said to be gone.
 */

import { mergeDetail } from "../live_list.js";
import { Charts } from "./charts.js";
import { keep, line, link, mark, sayer } from "./parts.js";
import { LiveSocket, outdated } from "./socket.js";
import { bytes, count, figure, time } from "./words.js";

const STEPS = { minutes: 5, day: 300, week: 3600 }; // seconds of a point
const MOST = { minutes: 180, day: 288, week: 168 };
const GONE_AFTER = 60; // seconds
const LISTS_EVERY = 30_000; // ms
const WITHOUT_SOCKET = 10_000;

const $ = (selector) => document.querySelector(selector);
const root = $("#live");
const charts = new Charts(root);
const say = sayer($("#live-state"));
const pause = $("#live-pause");
const seen = new Map(); // worker -> {at, row}

let isPaused = false;
let isConnected = false;
let length = "minutes";
let waiting = []; // figures since the last point of the chart

const socket = new LiveSocket(root.dataset.socket, {
  opened() {
    isConnected = true;
    ask(length);
  },
  text(message) {
    if (message.type === "history") showHistory(message);
    else if (!isPaused) showNow(message);
  },
  lost(why, isOver) {
    isConnected = false;
    root.dataset.state = "lost";
    say(outdated(why, isOver));
  },
});

// --- figures --------------------------------------------------------------------------------------

function showNow(now) {
  root.dataset.state = now.database ? "live" : "partial";
  const missed = now.missed ? `; this page was too slow for ${now.missed} updates` : "";
  say(
    now.database
      ? `updated every second${missed}`
      : "the database does not answer: figures are current; lists, alarms and indicators may be outdated",
  );
  if (now.node) {
    for (const place of document.querySelectorAll("[data-figure]")) {
      place.textContent = figure(now.node[place.dataset.figure], place.dataset.unit);
    }
    addPoint(now.node);
  }
  showLights(now);
  const empty = now.node?.messages
    ? "Messages are counted: a few seconds."
    : "No messages are passing.";
  showTop(
    "talkers",
    now.talkers,
    ({ name, session, messages, bytes: size, failed }) => [
      link(name, sessionUrl(session)),
      count(messages),
      bytes(size),
      count(failed),
    ],
    empty,
  );
  showTop(
    "addresses",
    now.addresses,
    ({ name, messages, bytes: size, failed }) => [
      link(name, `${root.dataset.allocationsUrl}?q=${encodeURIComponent(name)}`),
      count(messages),
      bytes(size),
      count(failed),
    ],
    empty,
  );
  showTop(
    "readers",
    now.readers,
    ({ name, session, waiting: size }) => [link(name, sessionUrl(session)), bytes(size)],
    "No messages are waiting.",
  );
  showWorkers(now);
  if (now.alarms) showAlarms(now);
}

function showLights({ lights = [], database }) {
  const shown = lights.map((light) =>
    light.name === "Database" && !database
      ? { ...light, state: "fault", text: "does not answer" }
      : light,
  );
  if (!shown.length && !database)
    shown.push({ name: "Database", state: "fault", text: "does not answer", url: "" });
  keep(
    $("#lights"),
    shown.map(({ name, state: how, text, url }) => {
      const item = document.createElement("li");
      item.dataset.state = how;
      const words = `${name}: ${text}`;
      item.append(mark(how), url ? link(words, url) : words);
      return item;
    }),
  );
}

function showTop(name, rows, cells, empty) {
  const body = $(`[data-top="${name}"]`);
  const lines = rows.map((row) => line(cells(row)));
  keep(body, lines.length ? lines : [line([empty])]);
}

function showWorkers({ workers, at }) {
  for (const worker of workers)
    if (worker.is_heard || !seen.has(worker.name)) seen.set(worker.name, { at, worker });
  const lines = [];
  for (const [name, { at: last, worker }] of [...seen].sort()) {
    if (at - last > GONE_AFTER) {
      seen.delete(name);
      continue;
    }
    const isHeard = workers.some((each) => each.name === name && each.is_heard);
    const cells = isHeard
      ? [
          name,
          count(worker.messages),
          count(worker.sockets),
          `${count(worker.cpu)} %`,
          bytes(worker.memory),
        ]
      : [`▲ ${name}: not heard of since`, time(last), "", "", ""];
    const row = line(cells);
    row.classList.toggle("console-silent", !isHeard);
    lines.push(row);
  }
  keep($("#live-workers"), lines);
}

function showAlarms({ alarms, alarms_standing: standing }) {
  const parts = [];
  if (alarms.length) {
    const list = document.createElement("ul");
    list.className = "console-alarms";
    for (const { url, kind, help, text, subject, count: times, at } of alarms) {
      const item = document.createElement("li");
      const name = document.createElement("strong");
      name.append("▲ ", link(kind, help));
      const detail = document.createElement("span");
      detail.append(`${count(times)}× · `, time(at));
      item.append(name, link(subject ? `${text} (${subject})` : text, url), detail);
      list.append(item);
    }
    parts.push(list);
  } else {
    const none = document.createElement("p");
    none.textContent = "There are no active alarms.";
    parts.push(none);
  }
  if (standing > alarms.length) {
    const more = document.createElement("p");
    more.append(link(`All ${count(standing)} active alarms`, root.dataset.alarmsUrl));
    parts.push(more);
  }
  keep($("#alarms"), parts);
}

function sessionUrl(session) {
  const id = /^[0-9a-f]{32}$/.test(session)
    ? session.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5")
    : session;
  return id ? root.dataset.sessionUrl.replace(/[0-]{36}/, id) : "";
}

// --- charts ---------------------------------------------------------------------------------------

function ask(wanted) {
  $("#charts-state").textContent = "loading…";
  socket.say({ length: wanted });
}

function showHistory({ length: what, points }) {
  if (what !== length) return;
  $("#charts-state").textContent =
    points === null
      ? "the database does not answer"
      : points.length
        ? ""
        : "no data for this period yet";
  waiting = [];
  charts.show(points ?? [], length !== "minutes");
}

/** The mean of the figures of a span is a point; of percentiles the worst. */
function addPoint(now) {
  waiting.push(now);
  if (!charts.last && length !== "minutes") return;
  const step = STEPS[length];
  if (Math.floor(now.at / step) === Math.floor(waiting[0].at / step) && waiting.length < step)
    return;
  const point = { ...now };
  for (const field of ["messages", "copies", "refused", "undeliverable", "cpu"]) {
    point[field] = waiting.reduce((sum, each) => sum + each[field], 0) / waiting.length;
  }
  for (const field of ["p50", "p99"])
    point[field] = Math.max(...waiting.map((each) => each[field]));
  waiting = [];
  charts.add(point, MOST[length]);
}

for (const button of document.querySelectorAll("[data-length]")) {
  button.addEventListener("click", () => {
    length = button.dataset.length;
    for (const each of document.querySelectorAll("[data-length]")) {
      each.setAttribute("aria-pressed", String(each === button));
    }
    ask(length);
  });
}

pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", String(isPaused));
  pause.textContent = isPaused ? "Go on" : "Pause";
  if (isPaused) say("paused");
  else if (isConnected) ask(length);
});

// --- the lists below ------------------------------------------------------------------------------

async function readLists() {
  if (!isPaused && document.visibilityState === "visible") {
    try {
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(20_000) });
      if (answer.ok && !answer.redirected) {
        mergeDetail(document, new DOMParser().parseFromString(await answer.text(), "text/html"));
      }
    } catch {
      // the socket's loss is said above
    }
  }
  setTimeout(readLists, isConnected ? LISTS_EVERY : WITHOUT_SOCKET);
}
setTimeout(readLists, WITHOUT_SOCKET);
