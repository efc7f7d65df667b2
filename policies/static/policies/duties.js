/**
 * What a rule does besides (its obligations), built by clicking; the JSON field keeps the truth.
 *
 * Shown are those with one plain value, and the rate limit. Others, and obligations by decision,
 * stay in the JSON.
 */

import { button, element, insteadOf, labelled, rateChoices } from "./controls.js";

const PLAIN = { inform: "tells the sender", emailto: "mails to", log: "logs" };
const DUE = ["permit", "deny", "notApplicable", "indeterminate"];

export function duties(form, words) {
  const area = form.querySelector("textarea[name=obligations]");
  if (!area || !form.elements.effect) return;
  const rows = element("ul");
  const acts = element("div", { className: "console-actions" });
  const { json } = insteadOf(area, "policy-duties", [rows, acts]);
  let map = {};
  let isWriting = false;

  function fromText() {
    try {
      map = area.value.trim() ? JSON.parse(area.value) : {};
    } catch {
      map = null;
    }
    const isMap = map !== null && typeof map === "object" && !Array.isArray(map);
    rows.hidden = acts.hidden = !isMap || Object.keys(map).some((name) => DUE.includes(name));
    if (rows.hidden) json.open = true;
    else draw();
  }

  function changed(isDrawn) {
    isWriting = true;
    area.value = JSON.stringify(map, null, 2);
    area.dispatchEvent(new Event("input", { bubbles: true }));
    isWriting = false;
    if (isDrawn) draw();
  }

  function draw() {
    rows.replaceChildren(
      ...Object.keys(map).map((name) => {
        const item = element("li", { className: "policy-test" });
        item.append(
          ...controls(name),
          labelled(
            button("Remove", () => {
              delete map[name];
              changed(true);
              acts.querySelector("button")?.focus();
            }),
            `Remove ${name}`,
          ),
        );
        return item;
      }),
    );
    const missing = Object.keys(PLAIN).filter((name) => !Object.hasOwn(map, name));
    acts.replaceChildren(
      ...missing.map((name) =>
        button(`It ${PLAIN[name]}…`, () => {
          map[name] = "";
          changed(true);
          rows.lastElementChild.querySelector("input").focus();
        }),
      ),
    );
    if (!Object.hasOwn(map, "rateLimit")) {
      acts.append(
        button("Limit the rate…", () => {
          map.rateLimit = { "rate.srcSession.minute": 60 };
          changed(true);
          rows.lastElementChild.querySelector("input").focus();
        }),
      );
    }
  }

  function controls(name) {
    if (name === "rateLimit" && isOneRate(map.rateLimit)) return rate();
    const isPlain = Object.hasOwn(PLAIN, name) && typeof map[name] !== "object";
    if (!isPlain) return [element("span", { textContent: `${name} (as JSON)` })];
    const input = labelled(element("input", { value: String(map[name]) }), `It ${PLAIN[name]}`);
    input.addEventListener("input", () => {
      map[name] = input.value;
      changed(false);
    });
    return [element("span", { textContent: `It ${PLAIN[name]}` }), input];
  }

  function rate() {
    const [[key, most]] = Object.entries(map.rateLimit);
    const number = labelled(element("input", { type: "number", min: "0", value: most }), "At most");
    const [by, window] = rateChoices(words, key);
    for (const each of [number, by, window]) {
      each.addEventListener("input", () => {
        map.rateLimit = {
          [`rate.${by.value}.${window.value}`]: number.value === "" ? null : Number(number.value),
        };
        changed(false);
      });
    }
    return [element("span", { textContent: "It permits at most" }), number, window, by];
  }

  area.addEventListener("input", () => isWriting || fromText());
  fromText();
}

function isOneRate(value) {
  const keys = value && typeof value === "object" ? Object.keys(value) : [];
  return keys.length === 1 && /^rate\.[A-Za-z]+\.(second|minute|hour|day)$/.test(keys[0]);
}
