/**
 * The live example: Alice reports a note, Bob observes it, through this page's node.
 *
 * What each does is what any runtime does (reporter and observer of a data object): Alice has the
 * node allocate an address, listens for questions and children, and sends an `update` for every
 * change; Bob subscribes to the changes and asks for the note as it is. After a `gap` each says
 * again what it holds, and Bob asks for the note again.
 */

import { logIn, logOut, whoIsHere } from "./login.js";
import { MessagePane, element } from "./pane.js";
import { Party } from "./party.js";

const $ = (selector) => document.querySelector(selector);
const domain = document.body.dataset.domain;
const sm = `domain://msg-node.${domain}/sm`;
const allocation = `domain://msg-node.${domain}/address-allocation`;

const pane = new MessagePane($("#messages"), $("#count"), $("#clear"));
const person = await whoIsHere().catch(({ message }) => fail(message));
const shared = { onFrame, onState, token: person?.token };
const alice = new Party("Alice", domain, shared);
const bob = new Party("Bob", domain, shared);
const form = $("#note");
const sentAt = new Map(); // version -> when Alice sent it

let note; // the address of the data object
let version = 0;
let answers = 0;

showPerson();
try {
  await Promise.all([alice.start(), bob.start()]);
  await report();
  await observe();
} catch (error) {
  fail(error.message);
}

// --- Alice, the reporter --------------------------------------------------------------------------

async function report() {
  const { value } = await alice.ask("create", allocation, { scheme: "comm", value: { number: 1 } });
  note = value.allocated[0];
  $("#object").textContent = note;
  const heard = [`${note}/subscription`, `${note}/children/`];
  await alice.ask("subscribe", sm, { resources: heard });
  alice.onGap = () => alice.ask("subscribe", sm, { resources: [note, ...heard] });
  alice.bus.addListener(`${note}/subscription`, ({ id, from, to }) => {
    const body = { code: 200, value: currentNote(), version };
    alice.bus.postMessage({ id, type: "response", from: to, to: from, body });
  });
  alice.bus.addListener(`${note}/children/`, ({ body }) => showAnswer(alice, body.value.text));
  form.addEventListener("input", ({ target }) => change(target));
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const field of form.elements) field.disabled = false;
}

function change({ name, value }) {
  version += 1;
  sentAt.set(version, performance.now());
  $("#guests-out").textContent = form.elements.guests.value;
  const body = { attribute: name, value, version, lastModified: new Date().toISOString() };
  alice.bus.postMessage({ id: version, type: "update", from: note, to: `${note}/changes`, body });
  alice.say(`version ${version}${alice.line.isCut ? ", waiting in her stub" : ""}`);
}

function currentNote() {
  return Object.fromEntries(
    ["title", "text", "guests"].map((name) => [name, form.elements[name].value]),
  );
}

// --- Bob, the observer ----------------------------------------------------------------------------

async function observe() {
  bob.bus.addListener(`${note}/changes`, ({ body }) => {
    showVouched(body.assertedIdentity === true);
    showNote({ [body.attribute]: body.value });
    const took = performance.now() - sentAt.get(body.version);
    sentAt.delete(body.version);
    bob.say(
      `version ${body.version}, ${took < 1000 ? `${took.toFixed(0)} ms after Alice` : "caught up"}`,
    );
    if (body.version === version) alice.say(`version ${version}, Bob has it`);
  });
  const answer = $("#answer");
  answer.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = answer.elements.answer.value.trim();
    if (!text) return;
    const to = `${note}/children/`;
    const body = { resource: to, value: { text } };
    bob.bus.postMessage({ id: ++answers, type: "create", from: `${bob.runtimeURL}/bob`, to, body });
    showAnswer(bob, text);
    answer.reset();
  });
  bob.onGap = follow;
  await follow();
  for (const field of answer.elements) field.disabled = false;
}

async function follow() {
  await bob.ask("subscribe", sm, { resources: [`${note}/changes`, `${note}/children/`] });
  const { value } = await bob.ask("subscribe", `${note}/subscription`, { resource: note });
  showNote(value);
}

// --- What the page shows --------------------------------------------------------------------------

function showNote(fields) {
  for (const [name, value] of Object.entries(fields)) {
    $(`#copy [data-field="${name}"]`).textContent = value;
  }
  if ("guests" in fields) {
    $("#dots").replaceChildren(
      ...Array.from({ length: Number(fields.guests) }, () => element("i")),
    );
  }
  const copy = ["title", "text", "guests"].map(
    (name) => $(`#copy [data-field="${name}"]`).textContent,
  );
  announce(`Bob’s copy: ${copy[0]}. ${copy[1]} ${copy[2]} guests.`);
}

function showAnswer(party, text) {
  const row = element("li");
  row.append(element("b", "Bob: "), text);
  const list = party.card.querySelector("[data-answers]");
  list.append(row);
  while (list.children.length > 4) list.firstElementChild.remove();
  if (party === alice) announce(`Alice got Bob’s answer: ${text}`);
}

function onFrame(party, isOut, message, line) {
  pane.show(party.name, isOut, message, line);
  const step = stepOf(isOut, message);
  if (step) $(`[data-step="${step}"]`).classList.add("done");
}

function stepOf(isOut, { type, to, from, body = {} }) {
  if (isOut) return "";
  if (from === "mn:/session") return body.runtimeToken ? "open" : "return";
  if (to.endsWith("/changes")) return "change";
  if (type !== "response") return "";
  if (from === allocation) return "address";
  return from.endsWith("/subscription") ? "subscribe" : "";
}

function onState(party, state, desc) {
  if (state === "failed")
    fail(
      `${party.name}’s stub has failed: ${desc.replace(/\.?$/, ".")} Load the page again for a new session.`,
    );
  if (state === "live" || state === "disconnected") announce(`${party.name} is ${state}.`);
  if (state === "disconnected" && party.line.isCut) {
    party.say(party === bob ? "the node keeps the rest" : "her stub keeps the rest");
  }
  if (state === "live" && party === alice && version) alice.say(`version ${version}`);
}

/** Who is logged in, and the way in or out. */
function showPerson() {
  const button = $("#person-button");
  $("#person").textContent = person ? person.name : "";
  $("#person").title = person ? `Logged in as ${person.name}` : "";
  button.textContent = person ? "Log out" : "Log in";
  button.hidden = false;
  button.addEventListener("click", () =>
    person ? leave() : logIn().catch(({ message }) => fail(message)),
  );
}

/** The runtimes' sessions first go on as nobody's, then the provider ends the log-in. */
async function leave() {
  const idm = `domain://idm.${domain}`;
  const body = { method: "logout" };
  await Promise.allSettled(
    [alice, bob].map((party) => party.ask("execute", idm, body, party.runtimeURL)),
  );
  logOut(person);
}

function showVouched(isVouched) {
  const mark = $("#vouched");
  mark.hidden = false;
  mark.dataset.vouched = isVouched;
  mark.textContent = isVouched
    ? "The node has verified the sender"
    : "Alice is not logged in, so the sender is not verified";
}

function fail(text) {
  const failure = $("#failure");
  failure.textContent = text;
  failure.hidden = false;
}

/** Tell a screen reader, once it is quiet: a word for each keystroke would be noise. */
function announce(text) {
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => ($("#live").textContent = text), 900);
}

addEventListener("pagehide", () => {
  alice.runtime?.close();
  bob.runtime?.close();
});
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
