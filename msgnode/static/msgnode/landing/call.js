/**
 * A call with audio between two browsers, each at the page of its own node.
 *
 * Hosted by the callee: the caller has his address, comes to his domain and sends the offer there; the callee's 200 has
 * the answer. Hosted by the caller, where both are logged in: the caller invites him by his name; the callee comes to
 * the caller's domain, accepts with the offer, and the caller's 200 has the answer. Until then the caller may
 * withdraw the invitation, and does so by leaving the page; who accepts it all the same is told so.
 *
 * Users of networks whose gateway the node is, as phones, are called by their address, and can be written to
 * (`?with=xmpp:bob@legacy.example`, `?with=sip:100@pbx.example`).
 *
 * Nothing runs until the visitor wants to be called, or to call.
 */

import { Runtime } from "../runtime/index.js";
import { isLegacy } from "../runtime/addresses.js";
import { whoIsHere } from "./login.js";
import { Media } from "./media.js";
import { element } from "./pane.js";

const $ = (selector) => document.querySelector(`#call ${selector}`);
const { domain, otherDomain, otherOrigin } = document.body.dataset;
const catalogues = {
  [domain]: location.origin,
  ...(otherOrigin ? { [otherDomain]: otherOrigin } : {}),
};
const query = new URLSearchParams(location.search);
const PREFIX = "#call=";
const RINGS = 10_000; // ms between signs of life while a person is asked
const RINGS_MOST = 5;
const INVITED = 60; // s for which somebody is invited
const EARLY_MOST = 8;
const LINES_MOST = 50;
const BUSY = { code: 486, description: "Busy." };
const OVER = { code: 410, description: "The invitation is over: it was withdrawn or has expired." };

let opening = null; // of the runtime
let me; // {runtime, url, person}
let current = null; // {media, peer}
let invited = null; // who was: {user, sent: what invitations.send() gave, early: who came before it did, timer, isReplaced}
let asked = null; // {invitation, end(why)}: what the person is asked about

if (location.hash.startsWith(PREFIX))
  $("#whom").value = decodeURIComponent(location.hash.slice(PREFIX.length));
$("#whom").value ||= /^(sip|xmpp):/.test(query.get("with") ?? "") ? query.get("with") : "";
$("#whom").addEventListener("input", showWrite);
$("#write").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => write(addressOf($("#whom").value)));
});
showWrite();
$("#reachable").addEventListener("click", () => attempt(beCalled));
$("#dial").addEventListener("submit", (event) => {
  event.preventDefault();
  const whom = addressOf($("#whom").value);
  attempt(() => (isPerson(whom) ? invite(whom) : call(whom)));
});
$("#withdraw").addEventListener("click", () => withdraw());
$("#hang-up").addEventListener("click", () => hangUp());
for (const each of document.querySelectorAll("#call [disabled]")) each.disabled = false;

async function attempt(action) {
  try {
    await action();
  } catch (error) {
    say(`That did not work: ${error.message}`);
  }
}

/** The runtime of this browser, made when it is first needed. */
function open() {
  opening ??= start().catch((error) => {
    opening = null;
    throw error;
  });
  return opening;
}

async function start() {
  say("Connecting …");
  const sandboxPage = "/static/msgnode/runtime/sandbox/frame.html";
  const runtime = new Runtime({ domain, catalogues, sandboxPage });
  await runtime.logIn();
  const person = await whoIsHere();
  if (person) {
    const body = { method: "login", params: { token: person.token } };
    await runtime.bus.request({
      type: "execute",
      from: `${runtime.url}/sm`,
      to: `domain://idm.${domain}`,
      body,
    });
  }
  const to = `domain://msg-node.${domain}/address-allocation`;
  const body = { scheme: "hyperty", value: { number: 1 } };
  const { value } = await runtime.bus.request({
    type: "create",
    from: `${runtime.url}/sm`,
    to,
    body,
  });
  const [url] = value.allocated;
  runtime.bus.addListener(url, (message) => hear(message));
  me = { runtime, url, person };
  return me;
}

async function beCalled() {
  const { runtime, url, person } = await open();
  $("#my-address").textContent = url;
  const place = otherOrigin || location.origin;
  const from = otherOrigin ? `?with=${encodeURIComponent(`${domain}@${location.origin}`)}` : "";
  $("#my-link").href = `${place}/${from}${PREFIX}${encodeURIComponent(url)}`;
  $("#mine").hidden = false;
  say("Open the link in another browser to be called.");
  if (person)
    await beInvited(runtime).catch(({ message }) =>
      say(`You can be called, but not invited: ${message}`),
    );
}

/** From now on callers may also invite the person by name. */
async function beInvited(runtime) {
  const withdrawn = ({ user, invitation }) => {
    if (asked?.invitation === invitation) asked.end(`${user} has withdrawn the invitation.`);
  };
  const { userURL } = await runtime.invitations.receive(
    (invitation) => attempt(() => consider(invitation)),
    { withdrawn },
  );
  $("#my-name").textContent = userURL.split("/").slice(3).join("/");
  $("#named").hidden = false;
}

// --- offer and answer -------------------------------------------------------------------------------

/** Send an offer to somebody's hyperty, wherever it is at home; the name of his invitation says why. */
async function call(to, invitation) {
  const { runtime, url } = await open();
  const media = begin(to);
  try {
    say("Asking for your microphone …");
    const connectionDescription = await media.offer();
    say(`Calling ${to} …`);
    const body = { value: { ...(invitation ? { invitation } : {}), connectionDescription } };
    const answer = await runtime.bus.request({ type: "create", from: url, to, body });
    await media.take(answer.value?.connectionDescription);
    await media.add(answer.value.iceCandidates);
  } catch (error) {
    media.close();
    throw error;
  }
}

function hear(message) {
  const { type, from, body } = message;
  if (type === "delete") {
    if (current?.peer === from) current.media.close();
  } else if (type === "update") {
    if (current?.peer === from && /^iceCandidates\b/.test(body?.attribute))
      attempt(() => current.media.add([body.value]));
  } else if (type === "create" && isLegacy(from) && typeof body?.value?.content === "string") {
    showLine(from, body.value.content);
    answer(message, { code: 200 });
  } else if (invited?.sent?.isAcceptedBy(message)) {
    forget(invited);
    attempt(() => take(message));
  } else if (type === "create" && body?.value?.invitation !== undefined) {
    if (invited && !invited.sent && invited.early.length < EARLY_MOST) invited.early.push(message);
    else answer(message, OVER);
  } else if (type === "create" && body?.value?.connectionDescription) {
    attempt(() => ring(message));
  }
}

// --- users of other networks ------------------------------------------------------------------------

/** What was entered, as an address: xmpp:bob@legacy.example is xmpp://legacy.example/bob. */
function addressOf(entered) {
  const [, scheme, user, host] = /^(sip|xmpp):([^/@]+)@([^/?;]+)$/.exec(entered.trim()) ?? [];
  return scheme ? `${scheme}://${host.toLowerCase()}/${user}` : entered.trim();
}

function showWrite() {
  $("#write").hidden = $("#said").hidden = !isLegacy(addressOf($("#whom").value));
}

/** Send somebody there what was written. */
async function write(to) {
  const { runtime, url } = await open();
  const { line } = $("#write").elements;
  const content = line.value.trim();
  if (!content) return;
  say("Sending …");
  const body = { value: { type: "chat", content } };
  const { desc } = await runtime.bus.request({ type: "create", from: url, to, body });
  showLine("You", content);
  line.value = "";
  say(`It was ${desc ?? "sent"}.`);
}

function showLine(who, text) {
  $("#said").hidden = false;
  $("#said").append(element("li", `${who}: ${text}`));
  if ($("#said").children.length > LINES_MOST) $("#said").firstElementChild.remove();
}

// --- invitations ------------------------------------------------------------------------------------

function isPerson(whom) {
  return whom.startsWith("user://") || (whom.includes("@") && !whom.includes("://"));
}

/** Have somebody of another domain come here and call, in the place of whoever was invited before. */
async function invite(user) {
  if (current) throw new Error("There is a call already.");
  if (invited && !invited.sent) throw new Error(`${invited.user} is being invited.`);
  if (invited?.isReplaced) throw new Error(`The invitation of ${invited.user} is being withdrawn.`);
  if (invited) await replace(invited);
  const one = { user, sent: null, early: [], timer: 0, isReplaced: false };
  invited = one;
  try {
    const { runtime, url } = await open();
    say(`Inviting ${user} …`);
    one.sent = await runtime.invitations.send(user, { hyperty: url, seconds: INVITED });
  } catch (error) {
    forget(one);
    one.early.forEach(hear);
    throw error;
  }
  $("#withdraw").hidden = false;
  say(`${user} is invited, for ${INVITED} seconds.`);
  one.timer = setTimeout(() => {
    forget(one);
    say(`${user} did not answer.`);
  }, INVITED * 1_000);
  one.early.forEach(hear);
}

/** Somebody else is to be invited. */
async function replace(before) {
  before.isReplaced = true;
  try {
    await before.sent.withdraw();
    forget(before);
  } finally {
    before.isReplaced = false;
  }
}

/** Not any more; who has accepted before stays accepted. */
async function withdraw() {
  const one = invited;
  const button = $("#withdraw");
  const isByKeyboard = button.matches(":focus-visible");
  button.disabled = true;
  say("Withdrawing the invitation …");
  try {
    const isTold = await one.sent.withdraw();
    if (invited !== one) return;
    forget(one);
    say(
      `The invitation is withdrawn.${isTold ? "" : ` The node of ${one.user} did not answer: the question may still be shown there, but nobody can accept it.`}`,
    );
  } catch (error) {
    if (invited === one)
      say(
        error.code === 409
          ? `${one.user} has accepted already.`
          : `It could not be withdrawn: ${error.message}`,
      );
  } finally {
    button.disabled = false;
    const isLeft = [document.body, button].includes(document.activeElement);
    if (isByKeyboard && isLeft) (button.hidden ? $("#whom") : button).focus();
  }
}

/** Somebody is not invited any more. */
function forget(one) {
  clearTimeout(one.timer);
  if (invited !== one) return;
  invited = null;
  $("#withdraw").hidden = true;
}

/** Somebody invites: the person is asked; the one who invites hears nothing of a refusal. */
async function consider({ user, hyperty, invitation, expires }) {
  if (isBusy()) return;
  let timer;
  const why = await new Promise((end) => {
    timer = setTimeout(end, expires * 1_000 - Date.now(), `The invitation of ${user} has expired.`);
    asked = { invitation, end };
    ask(`${user} invites you to a call.`, (isTaken) =>
      end(isTaken ? "" : "The invitation was declined."),
    );
  });
  clearTimeout(timer);
  asked = null;
  ask("");
  if (why) say(why);
  else await call(hyperty, invitation);
}

// --- who is called ----------------------------------------------------------------------------------

/** Somebody calls: the person is asked, and the caller is told meanwhile that it rings. */
async function ring(message) {
  if (isBusy()) return answer(message, BUSY);
  let rings = 0;
  const tell = () => answer(message, { code: 100 });
  tell();
  const timer = setInterval(() => (++rings < RINGS_MOST ? tell() : close(false)), RINGS);
  let close;
  const isTaken = await new Promise((resolve) => {
    close = resolve;
    ask(`${message.from} calls.`, resolve);
  });
  clearInterval(timer);
  ask("");
  if (isTaken) await take(message);
  else answer(message, { code: 403, description: "The call was declined." });
}

async function take(message) {
  if (current) return answer(message, BUSY);
  const media = begin(message.from);
  try {
    const { connectionDescription: offer, iceCandidates } = message.body.value;
    const connectionDescription = await media.answer(offer);
    await media.add(iceCandidates);
    answer(message, { code: 200, value: { connectionDescription } });
  } catch (error) {
    answer(message, { code: 500, description: error.message });
    media.close();
    throw error;
  }
}

function answer({ id, from, to }, body) {
  me.runtime.bus.postMessage({ id, type: "response", from: to, to: from, body });
}

// --- one call ---------------------------------------------------------------------------------------

function begin(peer) {
  if (current) throw new Error("There is a call already.");
  const media = new Media($("#voice"));
  current = { media, peer };
  $("#hang-up").hidden = false;
  media.onBytes = ({ sent: out, received }) => {
    $("#bytes").textContent = `${out} bytes sent, ${received} received`;
    $("#bytes").dataset.received = received;
    $("#bytes").dataset.sent = out;
    if (received) say(`You are talking with ${peer}.`);
  };
  media.onSilent = () =>
    say(`${peer} is not heard any more. The call ends, unless the connection comes back.`);
  media.onEnded = () => {
    current = null;
    $("#hang-up").hidden = true;
    say("The call has ended.");
  };
  return media;
}

function hangUp() {
  if (!current) return;
  const { media, peer } = current;
  me.runtime.bus.postMessage({ type: "delete", from: me.url, to: peer });
  media.close();
}

function isBusy() {
  return Boolean(current) || !$("#asked").hidden;
}

/** Ask the person; "" asks nothing any more. */
function ask(question, answered = () => {}) {
  $("#asked").hidden = !question;
  $("#question").textContent = question;
  $("#accept").onclick = () => answered(true);
  $("#decline").onclick = () => answered(false);
}

function say(text) {
  if ($("#call-says").textContent !== text) $("#call-says").textContent = text;
}

addEventListener("pagehide", () => {
  invited?.sent?.withdraw().catch(() => {}); // there is nobody to tell
  hangUp();
  me?.runtime.close();
});
