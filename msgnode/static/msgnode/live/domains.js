/**
 * The map of domains: what passes to and from each, every second, over the console's socket. The tables
 * say the same in words.
 */

import { DomainMap } from "./domain_map.js";
import { keep, line, link, sayer } from "./parts.js";
import { LiveSocket, outdated } from "./socket.js";
import { count } from "./words.js";

const $ = (selector) => document.querySelector(selector);
const root = $("#domains");
const say = sayer($("#domains-state"));
const pause = $("#domains-pause");
const map = new DomainMap($("#map"), root.dataset.domain);
const mayOpenPeers = "links" in root.dataset;
let isPaused = false;

new LiveSocket(root.dataset.socket, {
  opened() {},
  text(message) {
    if (!isPaused) show(message);
  },
  lost(why, isOver) {
    root.dataset.state = "lost";
    say(outdated(why, isOver));
  },
});

pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", isPaused);
  if (isPaused) say("paused");
});

function show(now) {
  const { missing, database } = now;
  root.dataset.state = database && !missing.length ? "live" : "partial";
  if (!database)
    say("the database does not answer: rates are current, decisions about peers may be outdated");
  else if (missing.length) say(`without data from ${missing.join(", ")}`);
  else say("updated every second");
  const peers = now.peers.map((each) => ({ ...each, url: mayOpenPeers ? each.url : "" }));
  const left = map.show(peers, now.visitors);
  $("#map-rest").textContent = rest(left, now);
  keep(
    $("#domains-peers"),
    peers.length ? peers.map(peerLine) : [line(["There are no peers.", "", "", "", "", ""])],
  );
  const rows = now.visitors.map(({ domain, url, sessions, sent, received }) =>
    line([link(domain, url), count(sessions), `${count(sent)}/s`, `${count(received)}/s`]),
  );
  if (now.other_domains)
    rows.push(
      line([`${count(now.other_domains)} other domains`, count(now.other_sessions), "", ""]),
    );
  keep($("#domains-visitors"), rows.length ? rows : [line(["There are no visitors.", "", "", ""])]);
}

function peerLine({
  domain,
  url,
  state: how,
  is_well: isWell,
  sent,
  received,
  waiting,
  round_trip_ms: took,
}) {
  const words = `${isWell ? "●" : "▲"} ${how}`;
  return line([
    link(domain, url),
    words,
    `${count(sent)}/s`,
    `${count(received)}/s`,
    count(waiting),
    took ? `${count(took)} ms` : "–",
  ]);
}

function rest(left, { other_domains: others }) {
  const texts = [];
  if (left) texts.push(`${count(left)} more of the domains below are not drawn.`);
  if (others) texts.push(`Visitors of ${count(others)} other domains are not drawn.`);
  return texts.join(" ");
}
