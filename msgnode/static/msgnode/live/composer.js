/** Composes a message from the schemas of the AsyncAPI document: fields and JSON, of which JSON is sent. */

import { TOKEN } from "./runtime_line.js";
import { faults, fields, valueAt, withValue } from "./schema.js";

const $ = (selector) => document.querySelector(selector);
const EXAMPLE = {
  runtime: /runtime:\/\/[^/"]+\/r1/g,
  token: /0f3c7e52b1/g,
  held: /(hyperty|comm):\/\/[^/"]+\/[ho]1/g,
};

export class Composer {
  #messages;
  #lines;
  #send;
  #kind = $("#compose-message");
  #sender = $("#compose-sender");
  #json = $("#compose-json");
  #button = $("#compose-send");
  #reply = null;

  /**
   * @param lines gives the runtimes that are there
   * @param send (line, message) gives whether it has gone out
   */
  constructor({ messages }, lines, send) {
    this.#messages = new Map(messages.map((each) => [each.name, each]));
    this.#lines = lines;
    this.#send = send;
    for (const { name, title } of messages) this.#kind.append(new Option(title, name));
    this.#kind.value = "message";
    this.#kind.addEventListener("change", () => this.#begin());
    this.#sender.addEventListener("change", () => this.#begin());
    this.#json.addEventListener("input", () => this.#shown(true));
    $("#compose").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#go();
    });
    $("#compose-try")?.addEventListener("submit", () => {
      $("#compose-try").elements.take.value = this.#json.value;
    });
    this.#begin();
  }

  /** Runtimes have come, gone, or got addresses. */
  lines() {
    const chosen = this.#sender.value;
    const names = this.#lines().map(({ name }) => name);
    if (
      JSON.stringify(names) !== JSON.stringify([...this.#sender.options].map(({ value }) => value))
    ) {
      this.#sender.replaceChildren(...names.map((name) => new Option(name, name)));
      if (names.includes(chosen)) this.#sender.value = chosen;
      else this.#begin();
    }
    const known = this.#lines().flatMap(({ url, addresses }) => [url, ...addresses]);
    $("#known-addresses").replaceChildren(...known.map((address) => new Option(address)));
    this.#button.disabled = !this.#line?.isOpen;
  }

  /** Begin the response to a request that came to a runtime. */
  answer(line, { id, from, to }) {
    this.#kind.value = "response";
    this.#sender.value = line.name;
    this.#reply = {
      id,
      type: "response",
      from: Array.isArray(to) ? line.url : to,
      to: from,
      body: { code: 200, value: "" },
    };
    this.#begin();
    this.#json.focus();
  }

  get #line() {
    return this.#lines().find(({ name }) => name === this.#sender.value);
  }

  #begin() {
    const { summary, example } = this.#messages.get(this.#kind.value);
    $("#compose-summary").textContent = summary;
    const url = this.#line?.url ?? "";
    let text = JSON.stringify(this.#reply ?? example);
    this.#reply = null;
    if (url) {
      const held = [...this.#line.addresses].at(-1);
      text = text.replace(/"from":"(hyperty|comm):[^"]*"/, `"from":${JSON.stringify(held ?? url)}`);
      text = text.replaceAll(EXAMPLE.runtime, url);
      if (held) text = text.replaceAll(EXAMPLE.held, held);
    }
    this.#write(JSON.parse(text.replaceAll(EXAMPLE.token, TOKEN)));
    this.#drawFields();
  }

  #write(message) {
    this.#json.value = JSON.stringify(message, null, 2);
    this.#shown(false);
  }

  #read() {
    try {
      return JSON.parse(this.#json.value);
    } catch {
      return undefined;
    }
  }

  #drawFields() {
    const { schema } = this.#messages.get(this.#kind.value);
    const message = this.#read();
    $("#compose-fields").replaceChildren(
      ...fields(schema)
        .filter(({ path, kind }) => kind !== "fixed" && path[0] !== "id")
        .map((field) => {
          const label = document.createElement("label");
          const name = Object.assign(document.createElement("span"), {
            textContent: field.path.join("."),
          });
          label.append(name, this.#control(field, valueAt(message, field.path)));
          return label;
        }),
    );
  }

  #control({ path, schema, kind }, value) {
    const control = document.createElement(kind === "choice" ? "select" : "input");
    control.className =
      "border border-base-200 dark:border-base-700 bg-white dark:bg-base-900 rounded-default px-3 py-2";
    if (kind === "choice") control.append(...schema.enum.map((each) => new Option(each)));
    else
      Object.assign(control, {
        type: kind === "number" ? "number" : "text",
        autocomplete: "off",
        spellcheck: false,
      });
    if (kind === "number")
      Object.assign(control, { min: schema.minimum ?? "", max: schema.maximum ?? "" });
    if (kind === "texts" || path[0] === "from" || path[0] === "to")
      control.setAttribute("list", "known-addresses");
    if (schema.examples) control.setAttribute("list", this.#listOf(path, schema.examples));
    if (schema.description) control.title = schema.description;
    control.value = Array.isArray(value) ? value.join(", ") : (value ?? "");
    control.dataset.path = path.join(".");
    control.addEventListener("input", () =>
      this.#write(withValue(this.#read(), path, typed(kind, control.value))),
    );
    return control;
  }

  #listOf(path, examples) {
    const id = `examples-${path.join("-")}`;
    document.getElementById(id)?.remove();
    const list = Object.assign(document.createElement("datalist"), { id });
    list.append(...examples.map((each) => new Option(each)));
    $("#compose").append(list);
    return id;
  }

  /** Say what is wrong; after typing in the JSON, fields follow. It may be sent nevertheless. */
  #shown(isTyped) {
    const message = this.#read();
    const place = $("#compose-faults");
    if (message === undefined) {
      place.textContent = "This is not JSON.";
      return;
    }
    const found = faults(this.#messages.get(this.#kind.value).schema, message);
    place.textContent = found.length
      ? `The schema is violated: ${found.slice(0, 3).join("; ")}. You can send the message nevertheless, to see the answer.`
      : "The message matches its schema.";
    if (!isTyped) return;
    for (const control of document.querySelectorAll("#compose-fields [data-path]")) {
      const value = valueAt(message, control.dataset.path.split("."));
      control.value = Array.isArray(value) ? value.join(", ") : (value ?? "");
    }
  }

  #go() {
    const message = this.#read();
    const line = this.#line;
    if (message === undefined || !line) return;
    const isAnswer = message.type === "response";
    const sent =
      isAnswer || typeof message !== "object" || message === null
        ? message
        : { ...message, id: line.nextId() };
    if (!this.#send(line, sent))
      $("#compose-faults").textContent = `${line.name} is not connected.`;
  }
}

function typed(kind, text) {
  if (text === "") return undefined;
  if (kind === "number") return Number(text);
  if (kind !== "texts") return text;
  const texts = text
    .split(",")
    .map((each) => each.trim())
    .filter(Boolean);
  return texts.length === 1 ? texts[0] : texts;
}
