// Checks the JSON of a policy field while it is typed, and says below it what is wrong; an example
// that is chosen is written into the fields. Rows are the builder's (builder.js).
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
      const remarks = warnings.map((line) => `Accepted, but written differently here: ${line}`);
      for (const line of [...(problems.length ? problems : ["No problems."]), ...remarks]) {
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
    area.dispatchEvent(new Event("input", { bubbles: true }));
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
    const examples = document.getElementById("guide-example");
    if (examples) examples.addEventListener("change", () => start(examples));
  });
})();
