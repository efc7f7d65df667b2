/**
 * The pane of messages: the newest first, each explained in a line, with its JSON when opened.
 * Keeps the last `LIMIT`, so that an hour of typing costs no more than a minute.
 */

const LIMIT = 80;
const HIDDEN = "•••";

export class MessagePane {
  #list;
  #count;
  #total = 0;
  #began = performance.now();

  constructor(list, count, clear) {
    this.#list = list;
    this.#count = count;
    clear.addEventListener("click", () => this.#list.replaceChildren());
  }

  show(name, isOut, message, line) {
    const row = element("li", "", name.toLowerCase());
    const details = element("details");
    const head = element("summary");
    const seconds = ((performance.now() - this.#began) / 1000).toFixed(2);
    head.append(
      element("time", `${seconds} s`),
      element("span", isOut ? `${name} → node` : `node → ${name}`, "way"),
      element("span", message.type, "type"),
      element("span", line),
    );
    details.append(head);
    details.addEventListener("toggle", () => {
      if (details.children.length === 1) details.append(element("pre", shown(message)));
    });
    row.append(details);
    this.#list.prepend(row);
    while (this.#list.children.length > LIMIT) this.#list.lastElementChild.remove();
    this.#total += 1;
    this.#count.textContent = `${this.#total} message${this.#total === 1 ? "" : "s"}`;
  }
}

/** A message for the eye. A token opens its session to whoever reads it, so it is hidden. */
function shown(message) {
  const text = JSON.stringify(message, null, 2);
  const isSession = message.to === "mn:/session" || message.from === "mn:/session";
  return isSession ? text.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, HIDDEN) : text;
}

export function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}
