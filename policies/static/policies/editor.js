// Checks the JSON of a policy field while it is typed, and says below it what is wrong; the guide
// writes into the fields what was chosen.
(() => {
  "use strict";
  const address = location.pathname.replace(/\/policies\/.*/, "/policies/policyset/check-typed/");

  function watch(area) {
    const said = document.createElement("div");
    said.setAttribute("role", "status");
    said.setAttribute("aria-live", "polite");
    said.className = "policy-check text-sm mt-2";
    area.after(said);
    let timer = 0;
    let asked = 0;

    async function check() {
      const number = ++asked;
      const token = document.querySelector("[name=csrfmiddlewaretoken]");
      const form = new URLSearchParams({
        layer: area.dataset.policyLayer,
        field: area.name.split("-").pop(),
        text: area.value,
        csrfmiddlewaretoken: token ? token.value : "",
      });
      let problems;
      let warnings;
      try {
        const answer = await fetch(address, { method: "POST", body: form });
        ({ problems, warnings = [] } = await answer.json());
      } catch {
        return; // the form itself is checked when it is saved
      }
      if (number !== asked) return;
      said.replaceChildren();
      said.classList.toggle("text-red-600", problems.length > 0);
      said.classList.toggle("text-green-700", problems.length === 0);
      const remarks = warnings.map((line) => `Written otherwise here: ${line}`);
      for (const line of [...(problems.length ? problems : ["In order."]), ...remarks]) {
        const row = document.createElement("div");
        row.textContent = line;
        said.append(row);
      }
      area.setAttribute("aria-invalid", String(problems.length > 0));
    }

    area.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(check, 400);
    });
  }

  const field = (name) => document.querySelector(`textarea[name=${name}]`);

  function write(area, value) {
    area.value = JSON.stringify(value, null, 2);
    area.dispatchEvent(new Event("input"));
  }

  function typed(text, operator) {
    const one = (word) => {
      if (/^-?\d+(\.\d+)?$/.test(word)) return Number(word);
      return word === "true" || word === "false" ? word === "true" : word;
    };
    const words = text.split(",").map((word) => word.trim()).filter((word) => word !== "");
    if (operator === "in" && !text.trim().startsWith("@")) return words.map(one);
    return words.length > 1 ? words.map(one) : one(text.trim());
  }

  function add(guide) {
    const area = field(guide.querySelector("[data-into]").dataset.into);
    const operator = document.getElementById("guide-operator").value;
    const name = document.getElementById("guide-attribute").value;
    const value = document.getElementById("guide-value");
    let present;
    try {
      present = area.value.trim() ? JSON.parse(area.value) : {};
    } catch {
      area.focus(); // what is wrong stands below it
      return;
    }
    const more = { [name]: { [operator]: typed(value.value, operator) } };
    if (Array.isArray(present) && present.length === 0) present = {};
    if (Array.isArray(present) || name in present) write(area, { allOf: [present, more] });
    else write(area, { ...present, ...more });
    value.value = "";
  }

  function start(choice) {
    if (!choice.value) return;
    const rule = JSON.parse(choice.value);
    document.querySelector("[name=effect]").value = rule.effect;
    write(field("condition"), rule.condition);
    write(field("obligations"), rule.obligations);
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("textarea[data-policy-layer]").forEach(watch);
    const guide = document.getElementById("policy-guide");
    if (!guide) return;
    guide.querySelector("#guide-add").addEventListener("click", () => add(guide));
    guide.querySelector("#guide-value").addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // adds, does not save
      add(guide);
    });
    const examples = guide.querySelector("#guide-example");
    if (examples) examples.addEventListener("change", () => start(examples));
  });
})();
