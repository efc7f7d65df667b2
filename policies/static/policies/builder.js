/**
 * The condition of a rule (the target of a policy or set) built by clicking, beside its JSON.
 *
 * - Rows write into the JSON field, and what is typed there is shown as rows again. The form sends
 *   the JSON only.
 * - A condition that rows cannot show stays as it is; the JSON is open then, and the page says why.
 * - While it is built, the page says what the rule does, in a sentence of the node's own reading.
 */

import { Unreadable, group, read, write } from "./condition.js";
import { button, choice, element, insteadOf, keyed, labelled, rateChoices } from "./controls.js";
import { duties } from "./duties.js";
import { Trial } from "./trial.js";

const HOW = {
  all: "All of these hold",
  any: "At least one of these holds",
  none: "None of these holds",
};
const DEEPEST = 4;
const PAUSE = 300; // ms

const guide = document.getElementById("policy-guide");
const area = guide && document.querySelector(`textarea[name=${guide.dataset.into}]`);
if (area) build();

function build() {
  const words = JSON.parse(document.getElementById("policy-words").textContent);
  const form = area.form;
  const sentence = element("p", { id: "policy-sentence", className: "policy-sentence" });
  sentence.setAttribute("role", "status");
  const unread = element("p", {
    hidden: true,
    textContent: "Rows cannot show this condition; it is edited as JSON below.",
  });
  const rows = element("div");
  const { place, json } = insteadOf(area, "policy-builder", [sentence, rows, unread]);
  const example = document.getElementById("guide-example");
  if (example) place.prepend(example.parentElement);

  let tree = group("all", []);
  let isWriting = false;
  let timer = 0;
  let asked = 0;

  function fromText() {
    try {
      tree = read(area.value.trim() ? JSON.parse(area.value) : {});
    } catch (fault) {
      unread.hidden = rows.hidden = false;
      if (fault instanceof Unreadable || fault instanceof SyntaxError) {
        rows.hidden = true;
        json.open = true;
        return;
      }
      throw fault;
    }
    unread.hidden = true;
    rows.hidden = false;
    draw();
  }

  /** A change by rows: the JSON follows; the rows are drawn anew if their number or kind changed. */
  function changed(focus) {
    isWriting = true;
    area.value = JSON.stringify(write(tree), null, 2);
    area.dispatchEvent(new Event("input", { bubbles: true }));
    isWriting = false;
    if (focus !== undefined) draw(focus);
  }

  function draw(focus = "") {
    rows.replaceChildren(drawGroup(tree, "1", null));
    if (focus) rows.querySelector(`[data-key="${focus}"]`)?.focus();
  }

  function drawGroup(node, path, parent) {
    const box = element("fieldset", { className: "policy-group" });
    const how = keyed(choice(HOW, node.how, "How the tests are combined"), `${path}.how`);
    how.addEventListener("change", () => {
      node.how = how.value;
      changed();
    });
    const legend = element("legend");
    legend.append(how);
    const list = element("ul");
    node.members.forEach((member, index) => {
      const inner = `${path}-${index + 1}`;
      const item = element("li");
      item.append(member.members ? drawGroup(member, inner, node) : drawTest(member, inner, node));
      list.append(item);
    });
    if (!node.members.length)
      list.append(
        element("li", {
          textContent: parent ? "No tests yet." : "No tests: the condition always holds.",
        }),
      );
    const acts = element("div", { className: "console-actions" });
    acts.append(
      keyed(
        button("Add a test", () => {
          node.members.push(newTest());
          changed(`${path}-${node.members.length}.attribute`);
        }),
        `${path}.add`,
      ),
    );
    if (path.split("-").length < DEEPEST) {
      acts.append(
        button("Add a group", () => {
          node.members.push(group(node.how === "any" ? "all" : "any", [newTest()]));
          changed(`${path}-${node.members.length}-1.attribute`);
        }),
      );
    }
    if (parent) acts.append(button("Remove the group", () => remove(parent, node, path)));
    box.append(legend, list, acts);
    return box;
  }

  function remove(parent, node, path) {
    parent.members.splice(parent.members.indexOf(node), 1);
    changed(`${path.slice(0, path.lastIndexOf("-"))}.add`);
  }

  function newTest() {
    return { attribute: "actionType", operator: "equals", value: null };
  }

  function drawTest(test, path, parent) {
    const number = path.slice(2).replaceAll("-", ".");
    const row = element("div", { className: "policy-test" });
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", `Test ${number}`);
    row.append(...attributeOf(test, path), operatorOf(test, path), ...valuesOf(test, path));
    row.append(
      labelled(
        button("Remove", () => remove(parent, test, path)),
        `Remove test ${number}`,
      ),
    );
    return row;
  }

  function attributeOf(test, path) {
    const open = openName(test.attribute);
    const groups = {
      ...words.attributes,
      Others: { "body.": "a field of the body …", "rate.": "messages that were counted …" },
    };
    const known = Object.values(groups).some((names) =>
      Object.hasOwn(names, open || test.attribute),
    );
    const select = element("select");
    for (const [title, names] of Object.entries(groups)) {
      const part = element("optgroup", { label: title });
      for (const [name, meaning] of Object.entries(names))
        part.append(
          new Option(open || !meaning ? `${meaning} ${name}` : `${name}: ${meaning}`, name),
        );
      select.append(part);
    }
    if (!known) select.append(new Option(test.attribute, test.attribute));
    select.value = open || test.attribute;
    keyed(labelled(select, "Attribute"), `${path}.attribute`);
    select.addEventListener("change", () => {
      test.attribute =
        { "body.": "body.value", "rate.": "rate.srcSession.minute" }[select.value] ?? select.value;
      const offered = operatorsOf(test.attribute);
      if (test.value === null || !offered.includes(test.operator)) [test.operator] = offered;
      test.value = test.operator === "exists" ? true : null;
      changed(`${path}.attribute`);
    });
    const more = [];
    if (open === "body.") {
      const name = labelled(
        element("input", {
          value: test.attribute.slice(5),
          spellcheck: false,
          placeholder: "value.name",
        }),
        "Field of the body",
      );
      name.addEventListener("input", () => {
        test.attribute = `body.${name.value.trim()}`;
        changed();
      });
      more.push(name);
    } else if (open === "rate.") {
      const [by, window] = rateChoices(words, test.attribute);
      for (const each of [by, window]) {
        each.addEventListener("change", () => {
          test.attribute = `rate.${by.value}.${window.value}`;
          changed();
        });
      }
      more.push(by, window);
    }
    return [select, ...more];
  }

  function operatorOf(test, path) {
    const offered = operatorsOf(test.attribute);
    const names = offered.includes(test.operator) ? offered : [...offered, test.operator];
    const select = choice(
      Object.fromEntries(names.map((name) => [name, words.operators[name] ?? name])),
      test.operator,
      "Operator",
    );
    select.addEventListener("change", () => {
      const was = test.operator;
      test.operator = select.value;
      if (select.value === "exists") test.value = true;
      else if (was === "exists" || was === "between" || select.value === "between")
        test.value = null;
      else test.value = shaped(test.operator, partsOf(test.value));
      changed(`${path}.operator`);
    });
    return keyed(select, `${path}.operator`);
  }

  function operatorsOf(name) {
    const kind = words.kinds[name] ?? (name.startsWith("rate.") ? "number" : "any");
    return words.operators_of[kind];
  }

  function valuesOf(test, path) {
    if (test.operator === "exists") {
      const select = choice(
        { true: "yes", false: "no" },
        String(test.value),
        "Whether it is there",
      );
      select.addEventListener("change", () => {
        test.value = select.value === "true";
        changed();
      });
      return [select];
    }
    const parts = partsOf(test.value);
    const suggested = suggestionsFor(test);
    const list = element("datalist", { id: `values-${path}` });
    list.append(...suggested.map((value) => new Option(value)));
    const boxes = parts.flatMap((part, index) => {
      const several = parts.length > 1 ? ` ${index + 1}` : "";
      const texts =
        test.operator === "between" ? bounds(part) : [part === null ? "" : String(part)];
      const inputs = texts.map((text, side) => {
        const name = test.operator === "between" ? ["From", "To"][side] : "Value";
        const input = element("input", {
          value: text,
          spellcheck: false,
          autocomplete: "off",
          placeholder: placeholder(test, side),
        });
        input.setAttribute("list", list.id);
        return keyed(labelled(input, `${name}${several}`), `${path}.value${index}${side || ""}`);
      });
      for (const input of inputs) {
        input.addEventListener("input", () => {
          const text = inputs
            .map((each) => each.value.trim())
            .join(" ")
            .trim();
          parts[index] = typed(test, text);
          test.value = shaped(test.operator, parts);
          changed();
        });
      }
      return index ? [element("span", { textContent: "or" }), ...inputs] : inputs;
    });
    const more = labelled(
      button("or…", () => {
        test.value = [...parts, null];
        changed(`${path}.value${parts.length}`);
      }),
      "Add a value",
    );
    const less =
      parts.length > 1
        ? [
            labelled(
              button("−", () => {
                test.value = shaped(test.operator, parts.slice(0, -1));
                changed(`${path}.value${parts.length - 2}`);
              }),
              "Remove the last value",
            ),
          ]
        : [];
    return [...boxes, list, more, ...less];
  }

  function suggestionsFor(test) {
    const lists = test.operator === "in" ? words.lists.map((name) => `@${name}`) : [];
    return [...lists, ...(words.suggestions[test.attribute] ?? [])];
  }

  function placeholder({ attribute, operator }, side) {
    const kind = words.kinds[attribute];
    if (kind === "time") return side ? "06:00" : "22:00";
    if (kind === "date") return "2026-12-24";
    if (kind === "weekday") return side ? "friday" : "monday";
    if (operator === "like") return "comm://*/private/*";
    return kind === "number" || operator === "moreThan" || operator === "lessThan" ? "60" : "";
  }

  function say() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const number = ++asked;
      let told;
      try {
        told = await (
          await fetch(guide.dataset.say, { method: "POST", body: typedForm(form, guide) })
        ).json();
      } catch {
        return; // the form itself is checked when it is saved
      }
      if (number !== asked) return;
      const isWrong = told.problems.length > 0;
      sentence.textContent = isWrong ? `Not complete: ${told.problems[0]}` : told.sentence;
      sentence.dataset.state = isWrong ? "wrong" : "well";
    }, PAUSE);
  }

  area.addEventListener("input", () => isWriting || fromText());
  form.addEventListener("input", say);
  form.addEventListener("change", say);
  fromText();
  duties(form, words);
  if (guide.dataset.try)
    place.append(new Trial(guide.dataset.try, () => typedForm(form, guide)).place);
  say();
}

/** What the form says now, for the node to read. */
function typedForm(form, guide) {
  const names = [
    "key",
    "policy",
    "priority",
    "effect",
    "target",
    "condition",
    "obligations",
    "advice",
    "csrfmiddlewaretoken",
  ];
  const said = new URLSearchParams({ layer: guide.dataset.layer, rule: guide.dataset.rule ?? "" });
  for (const name of names) {
    const field = form.elements[name];
    if (field) said.set(name, field.value);
  }
  return said;
}

/** `body.` or `rate.` for names that are completed, "" for others. */
function openName(attribute) {
  if (attribute.startsWith("body.")) return "body.";
  return /^rate\.[A-Za-z]+\.[a-z]+$/.test(attribute) ? "rate." : "";
}

function partsOf(value) {
  return Array.isArray(value) && value.length
    ? [...value]
    : [Array.isArray(value) ? null : (value ?? null)];
}

function bounds(part) {
  const [from = "", ...rest] = String(part ?? "").split(/\s+/);
  return [from, rest.join(" ")];
}

function typed({ operator }, text) {
  if (text === "") return null;
  const isNumber =
    (operator === "moreThan" || operator === "lessThan") && /^-?\d+(\.\d+)?$/.test(text);
  return isNumber ? Number(text) : text;
}

/** One value or several, as the operator takes them. */
function shaped(operator, parts) {
  if (parts.length > 1) return parts;
  const [part] = parts;
  return operator === "in" && part !== null && !/^[@<]/.test(String(part)) ? parts : part;
}
