/** A rule that is being built, tried on the recorded messages of the last hours. */

import { button, choice, element } from "./controls.js";

const number = new Intl.NumberFormat("en");

export class Trial {
  #url;
  #form;
  #said = element("div", { id: "policy-tried" });
  #hours = choice(
    { 1: "this hour", 6: "the last 6 hours", 24: "the last 24 hours" },
    "1",
    "Recorded messages of",
  );
  #button = button("Try it on recorded messages of", () => this.#run());

  /** @param form gives what the form says now */
  constructor(url, form) {
    this.#url = url;
    this.#form = form;
    this.#said.setAttribute("role", "status");
    this.place = element("div", { className: "policy-trial" });
    const row = element("div", { className: "console-actions" });
    row.append(this.#button, this.#hours);
    this.place.append(row, this.#said);
  }

  async #run() {
    const said = this.#form();
    said.set("hours", this.#hours.value);
    this.#button.disabled = true;
    this.#said.replaceChildren(element("p", { textContent: "Trying …" }));
    try {
      const answer = await fetch(this.#url, { method: "POST", body: said });
      if (!answer.ok) throw new Error(`the node answers ${answer.status}`);
      this.#show(await answer.json());
    } catch (fault) {
      this.#show({ fault: `It could not be tried: ${fault.message}.` });
    }
    this.#button.disabled = false;
  }

  #show({ fault, rows, looked_at, unknown, refused, passed, senders }) {
    if (fault) {
      this.#said.replaceChildren(element("p", { textContent: fault }));
      return;
    }
    const what =
      refused || passed
        ? `with this rule ${many(refused)} more would be refused and ${many(passed)} more would pass`
        : "with this rule no decision would change";
    const told = [
      element("p", {
        textContent: `Of ${many(looked_at)} of ${many(rows)} recorded messages, ${what}.`,
      }),
    ];
    if (unknown)
      told.push(
        element("p", {
          textContent: `${many(unknown)} could not be decided, because the record has no bodies, users or counters.`,
        }),
      );
    if (senders.length) told.push(chart(senders));
    told.push(
      element("p", {
        textContent: "Compared with the draft without this rule, as if its set were in force.",
      }),
    );
    this.#said.replaceChildren(...told);
  }
}

function many(count) {
  return number.format(count);
}

/** Who would notice, with a bar and the number beside it. */
function chart(senders) {
  const most = Math.max(...senders.map((each) => each.refused + each.passed));
  const table = element("table", { className: "console-table" });
  const head = element("thead");
  head.innerHTML =
    '<tr><th scope="col">From</th><th scope="col" class="console-right">Refused</th><th scope="col" class="console-right">Pass</th><th scope="col">Both</th></tr>';
  const body = element("tbody");
  for (const { name, refused, passed } of senders) {
    const bar = element("progress", {
      className: "console-progress",
      max: most,
      value: refused + passed,
    });
    bar.setAttribute("aria-label", `${refused + passed} messages`);
    const cells = [name, many(refused), many(passed), bar].map((content, index) => {
      const cell = element(index ? "td" : "th", {
        className: index === 1 || index === 2 ? "console-right" : index ? "" : "console-wrap",
      });
      if (!index) cell.scope = "row";
      cell.append(content);
      return cell;
    });
    const row = element("tr");
    row.append(...cells);
    body.append(row);
  }
  table.append(head, body);
  const room = element("div", { className: "console-scroll", tabIndex: 0 });
  room.setAttribute("role", "region");
  room.setAttribute("aria-label", "Affected senders, table");
  room.append(table);
  return room;
}
