/**
 * A data object that tabs share: one reports a board, all others observe it and add lines.
 *
 * Nothing runs until the visitor starts a board, or comes with the link of one (`#board=<address>`).
 */

import { Runtime } from "../runtime/index.js";
import { Syncher } from "../runtime/syncher/index.js";
import { element } from "./pane.js";

const $ = (selector) => document.querySelector(`#together ${selector}`);
const { domain } = document.body.dataset;
const PREFIX = "#board=";

let runtime;
let board;

$("#board-start").disabled = false;
$("#board-start").addEventListener("click", () => enter(start));
const invited = location.hash.startsWith(PREFIX)
  ? decodeURIComponent(location.hash.slice(PREFIX.length))
  : "";
if (invited) enter((syncher) => join(syncher, invited));

async function enter(open) {
  $("#board-start").disabled = true;
  say("Connecting …");
  try {
    runtime = new Runtime({ domain, catalogues: { [domain]: location.origin } });
    await runtime.logIn();
    await open(new Syncher(runtime.addHyperty()));
  } catch (error) {
    await runtime?.close();
    say(
      error.code === 404
        ? "There is no such board: the tab that reported it is closed. Start a new one."
        : `That did not work: ${error.message}`,
    );
    $("#board-start").disabled = false;
    return;
  }
  $("#board").hidden = false;
  $("#board-start").hidden = true;
  board.onChild(show);
  show();
  const line = $("#board-line");
  line.addEventListener("submit", (event) => {
    event.preventDefault();
    const { text } = line.elements;
    const said = text.value.trim();
    if (!said) return;
    line.reset();
    board
      .addChild({ text: said })
      .catch(({ message }) => say(`“${said}” was not added: ${message}`));
  });
}

/** The first tab: it reports. */
async function start(syncher) {
  board = await syncher.create({ title: $("#board-title").value }, { name: "board" });
  const link = `${location.origin}/${PREFIX}${encodeURIComponent(board.url)}`;
  $("#board-link").href = link;
  $("#board-link").hidden = false;
  $("#board-role").textContent = "the reporter";
  $("#board-title").addEventListener("input", ({ target }) => {
    board.data.title = target.value;
    show();
  });
  say("You report this board. Open it in another tab, and write in either.");
}

/** Another tab: it observes. */
async function join(syncher, url) {
  board = await syncher.subscribe(url);
  $("#board-title").readOnly = true;
  $("#board-role").textContent = "an observer";
  board.onChange(show);
  board.onStatus((status) => say(STATUS[status]));
  say(STATUS.live);
}

const STATUS = {
  live: "You observe this board. Only the reporter can change the heading; everybody can add lines.",
  disconnected: "The reporter cannot be reached at the moment. This is the last known state.",
  ended: "The reporter has ended this board.",
};

function show() {
  const title = $("#board-title");
  if (title.value !== board.data.title) title.value = board.data.title;
  const rows = board.children.map(({ value, source }) => {
    const row = element("li");
    row.append(
      element("b", source === board.reporter ? "reporter: " : "observer: "),
      String(value.text),
    );
    return row;
  });
  $("#board-lines").replaceChildren(...rows);
  $("#board-version").textContent = `version ${board.version}`;
}

function say(text) {
  $("#board-says").textContent = text;
}

addEventListener("pagehide", () => runtime?.close());
