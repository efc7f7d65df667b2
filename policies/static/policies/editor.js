// Checks the JSON of a policy field while it is typed, and says below it what is wrong.
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
      try {
        const answer = await fetch(address, { method: "POST", body: form });
        problems = (await answer.json()).problems;
      } catch {
        return; // the form itself is checked when it is saved
      }
      if (number !== asked) return;
      said.replaceChildren();
      said.classList.toggle("text-red-600", problems.length > 0);
      said.classList.toggle("text-green-700", problems.length === 0);
      for (const line of problems.length ? problems : ["In order."]) {
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

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("textarea[data-policy-layer]").forEach(watch);
  });
})();
