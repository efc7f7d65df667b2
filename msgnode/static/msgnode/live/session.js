/**
 * The page of a session: what it sends and is given each second, and what failed of it, over the
 * console's socket. *Pause* of the page, which holds the fields, holds this too.
 */

import { Charts } from "./charts.js";
import { keep, line, link, row, sayer } from "./parts.js";
import { LiveSocket, outdated } from "./socket.js";
import { bytes, count, figure, time } from "./words.js";

const KEPT = 300; // seconds
const OUTCOMES = {
  blocked: "blocked by a policy",
  refused: "refused",
  undeliverable: "nobody listens",
  dropped: "no room",
};

const $ = (selector) => document.querySelector(selector);
const root = $("#session-live");
const charts = new Charts(root);
const say = sayer($("#session-live-state"));
const pause = $("[data-live-detail] button");

const socket = new LiveSocket(root.dataset.socket, {
  opened() {
    socket.say({ length: "session" });
  },
  text(message) {
    if (message.type === "history") charts.show(message.points ?? [], false);
    else if (pause?.getAttribute("aria-pressed") !== "true") showNow(message);
  },
  lost(why, isOver) {
    root.dataset.state = "lost";
    say(outdated(why, isOver));
  },
});

function showNow({ session, missing }) {
  if (!session) {
    root.dataset.state = "partial";
    say(
      missing.length
        ? `no worker that answers has this session; ${missing.join(", ")} ${missing.length === 1 ? "does" : "do"} not answer`
        : "no worker has this session any more",
    );
    return;
  }
  root.dataset.state = "live";
  say(sentence(session));
  const now = { ...session.now };
  for (const place of root.querySelectorAll("[data-figure]")) {
    const value = now[place.dataset.figure];
    place.textContent =
      place.dataset.unit === "level"
        ? value === undefined
          ? "–"
          : bytes(value)
        : figure(value, place.dataset.unit);
  }
  const { totals } = session;
  $("#session-totals").textContent =
    `Sent since it connected: ${count(totals.messages_in)} messages, ${bytes(totals.bytes_in)}. ` +
    `Received since this worker serves it: ${count(totals.messages_out)} messages, ${bytes(totals.bytes_out)}.`;
  if (session.now && session.now.at > charts.last) charts.add(session.now, KEPT);
  showFailures(session.failures);
}

function sentence({ state: what, worker, is_held_back: isHeldBack, is_behind: isBehind }) {
  const words = [`${what} at ${worker}`];
  if (isHeldBack)
    words.push("▲ back-pressure: it is over its rate limit, or waits for slow readers");
  if (isBehind) words.push("▲ slow: it does not read its messages in time");
  return words.join("; ");
}

function showFailures(failures) {
  const rows = failures.map(({ at, type, to, outcome, code, rule, count: times, url }) => {
    const why = `${OUTCOMES[outcome] ?? outcome}${code ? ` (${code})` : ""}`;
    return row(
      [time(at), type, to, rule ? link(`${why}: ${rule}`, url) : why, count(times)],
      ["console-wrap", "", "console-wrap", "console-wrap", "console-right"],
    );
  });
  keep(
    $("#session-failures"),
    rows.length ? rows : [line(["Nothing has failed since you opened this page."])],
  );
}
