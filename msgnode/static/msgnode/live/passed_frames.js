/** Frames that passed, the newest first: what each is, what was answered, and why it went as it did. */

import { button } from "./parts.js";
import { branch, step } from "./trace_steps.js";
import { microseconds, time } from "./words.js";

const SHOWN = 100;

export class Passed {
  #place;
  #facts;
  #answer;
  #sent = []; // {row, at}

  /** @param answer (line, message): begin the response to a request */
  constructor(place, facts, answer) {
    this.#place = place;
    this.#facts = facts;
    this.#answer = answer;
  }

  clear() {
    this.#sent = [];
    this.#place.replaceChildren();
  }

  add(line, isOut, message) {
    if (!this.#place.querySelector("details")) this.#place.replaceChildren();
    const row = new Row(line, isOut, message, this.#facts);
    this.#place.prepend(row.place);
    const isAnswer = message?.type === "response";
    if (isOut) this.#sent = [...this.#sent, { row, at: performance.now() }].slice(-SHOWN);
    else if (isAnswer) {
      const asked = this.#sent.findLast((each) => each.row.asks(line, message.id));
      asked?.row.answered(message, performance.now() - asked.at);
    } else if (message?.id !== undefined) row.offer("Answer it", () => this.#answer(line, message));
    while (this.#place.children.length > SHOWN) this.#place.lastElementChild.remove();
  }

  /** Traces of what runtimes of this page have sent. */
  explain(parts) {
    for (const part of parts) this.#sent.findLast(({ row }) => row.isOf(part))?.row.explain(part);
  }
}

class Row {
  place = document.createElement("li");
  #details = document.createElement("details");
  #said = document.createElement("p");
  #answer = document.createElement("p");
  #more = document.createElement("div");
  #facts;

  constructor(line, isOut, message, facts) {
    Object.assign(this, { line, message, isOut });
    this.#facts = facts;
    const summary = document.createElement("summary");
    const way = Object.assign(document.createElement("strong"), {
      textContent: isOut ? `${line.name} → node` : `node → ${line.name}`,
    });
    const what = document.createElement("span");
    what.className = "console-wrap";
    const to = Array.isArray(message?.to) ? message.to.join(", ") : message?.to;
    what.textContent = isOut
      ? `${message?.type} to ${to}`
      : `${message?.type} from ${message?.from}${message?.body?.code ? `: ${message.body.code}` : ""}`;
    summary.append(time(Date.now() / 1000), " ", way, " ", what);
    const json = Object.assign(document.createElement("pre"), {
      className: "console-json",
      tabIndex: 0,
      textContent: JSON.stringify(message, null, 2),
    });
    this.#details.append(summary, this.#more, json);
    this.#said.className = "runtime-explained";
    this.place.append(this.#details, this.#said, this.#answer);
  }

  /** Whether a trace is that of this frame. */
  isOf(part) {
    const { message } = this;
    return (
      this.isOut &&
      part.why !== "link" &&
      part.type.toLowerCase() === String(message?.type).toLowerCase() &&
      part.sender === message?.from &&
      part.id === JSON.stringify(message?.id)
    );
  }

  /** Whether it is the request that a response with this id answers. */
  asks(line, id) {
    return this.line === line && this.message?.type !== "response" && this.message?.id === id;
  }

  answered(message, took) {
    const { code, desc, description } = message.body ?? {};
    this.#answer.replaceChildren(
      `Answered ${code ?? ""} by ${message.from} after ${microseconds(took * 1000)}${code !== 200 && (desc ?? description) ? `: ${desc ?? description}` : ""} `,
    );
    if (code >= 400) {
      const link = Object.assign(document.createElement("a"), {
        className: "text-link",
        href: `${this.#facts.problems}errors/${code}`,
        textContent: `what ${code} means`,
      });
      this.#answer.append(link);
    }
  }

  explain(part) {
    this.#said.textContent = sentences(part).join(" ");
    const table = Object.assign(document.createElement("table"), { className: "console-table" });
    table.innerHTML =
      '<thead><tr><th scope="col">Step</th><th scope="col" class="console-right">Start</th><th scope="col" class="console-right">Took</th><th scope="col">Worker</th><th scope="col">What is known of it</th></tr></thead>';
    const body = document.createElement("tbody");
    body.append(...part.spans.map((span, index) => step(part, span, index, part.at)));
    table.append(body);
    const room = Object.assign(document.createElement("div"), {
      className: "console-scroll",
      tabIndex: 0,
    });
    room.setAttribute("role", "region");
    room.setAttribute("aria-label", "Steps, table");
    room.append(table);
    this.#more.replaceChildren(room, ...(part.tree ?? []).map(branch));
  }

  offer(text, act) {
    this.place.append(button(text, act));
  }
}

/** How a message went, from its trace. */
function sentences({ spans, outcome, code, further, to }) {
  const told = [];
  const named = (name) => spans.find((span) => span.name === name);
  const admission = named("admission");
  if (admission?.is_error)
    return [`Not admitted: ${admission.facts.why} (${admission.facts.code}).`];
  if (admission) told.push("Admitted.");
  for (const [name, where] of [
    ["policies in", "on its way in"],
    ["policies out", "for its recipient"],
  ]) {
    const decision = named(name);
    if (!decision) continue;
    const { effect, rule, version } = decision.facts;
    const by = rule ? ` by ${rule}${version ? `, version ${version}` : ""}` : "";
    if (effect === "notApplicable")
      told.push(`No rule applies ${where}, so it ${decision.is_error ? "is refused" : "passes"}.`);
    else
      told.push(
        `The policies decide ${effect} ${where}${by}${decision.is_error ? ", so it is refused" : ""}.`,
      );
  }
  const answer = named("answer");
  const delivered = spans.filter(({ name }) => name === "deliver");
  if (delivered.length) {
    const names = delivered.slice(0, 3).map(({ facts }) => facts.runtime || facts.session);
    told.push(
      `It is delivered to ${delivered.length + further} listener${delivered.length + further > 1 ? "s" : ""}: ${names.join(", ")}${delivered.length + further > 3 ? " …" : ""}.`,
    );
  } else if (answer) told.push(`${answer.facts.component} of the node answers it.`);
  else if (outcome === "undeliverable") told.push(`Nobody listens to ${to}.`);
  told.push(`Outcome: ${outcome || "under way"}${code ? ` (${code})` : ""}.`);
  return told;
}
