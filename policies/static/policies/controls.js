/** Controls of the builder, in the look of the console. */

const LOOK = "border border-base-200 dark:border-base-700 rounded-default px-3 py-2";
const FIELD = `${LOOK} bg-white dark:bg-base-900 max-w-full`;

export function element(tag, properties = {}) {
  const made = document.createElement(tag);
  if (tag === "input" || tag === "select") made.className = FIELD;
  return Object.assign(made, properties);
}

/** @param options {value: text} */
export function choice(options, value, label) {
  const select = element("select");
  for (const [name, text] of Object.entries(options)) select.append(new Option(text, name));
  select.value = value;
  return labelled(select, label);
}

export function button(text, act) {
  const made = element("button", {
    type: "button",
    textContent: text,
    className: `${LOOK} font-medium`,
  });
  made.addEventListener("click", act);
  return made;
}

export function labelled(control, label) {
  control.setAttribute("aria-label", label);
  return control;
}

/** How messages are counted, and within how long, as `rate.<key>.<window>` has it. */
export function rateChoices(words, attribute) {
  const [, key, length] = attribute.split(".");
  const keys = Object.fromEntries(words.rate_keys.map((each) => [each, each]));
  const windows = Object.fromEntries(words.windows.map((each) => [each, `a ${each}`]));
  return [choice(keys, key, "Counted by"), choice(windows, length, "Within")];
}

/** A place for controls where a JSON field was, with the field folded away at its end. */
export function insteadOf(area, id, controls) {
  const place = element("div", { className: "policy-builder", id });
  const json = element("details", { className: "policy-json" });
  area.before(place);
  json.append(element("summary", { textContent: "As JSON" }), area);
  place.append(...controls, json);
  return { place, json };
}

/** What gives a control the focus back when it is drawn anew. */
export function keyed(control, key) {
  control.dataset.key = key;
  return control;
}
