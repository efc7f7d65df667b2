// Gives the search boxes of relations the names of their fields, which select2 leaves out.
function nameSearchBoxes() {
  for (const select of document.querySelectorAll("select.admin-autocomplete")) {
    const name = select.labels[0]?.textContent.replace("*", "").trim();
    const box = select.parentElement.querySelector(".select2-selection:not([aria-label])");
    if (!name || !box) continue;
    box.setAttribute("aria-label", name);
    box.querySelector(".select2-selection__rendered")?.setAttribute("aria-label", name);
  }
}
window.addEventListener("load", () => {
  nameSearchBoxes();
  new MutationObserver(nameSearchBoxes).observe(document.body, { childList: true, subtree: true });
});

// The key / opens the search, but where somebody types.
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  event.preventDefault();
  dispatchEvent(new CustomEvent("opencommand"));
});
document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("search-input-command")?.setAttribute("aria-label", "Search everything");
});

// The theme's page has no main landmark, and buttons that are spans without a name.
document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("main")?.setAttribute("role", "main");
});

// Names for what Django and the theme leave without: controls in tables of inlines, by their column,
// and icons whose name needs a role.
function nameInlines() {
  for (const icon of document.querySelectorAll(".help-tooltip[aria-label]:not([role])"))
    icon.setAttribute("role", "img");
  for (const control of document.querySelectorAll(
    "td input:not([type=hidden], [aria-label]), td select:not([aria-label])",
  )) {
    const cell = control.closest("td");
    const name =
      [...cell.classList].find((each) => each.startsWith("field-"))?.slice(6) ??
      control.name.split("-").pop();
    if (name && control.id && !control.labels?.length)
      control.setAttribute("aria-label", name.replaceAll("_", " "));
  }
}
window.addEventListener("load", () => {
  nameInlines();
  new MutationObserver(nameInlines).observe(document.body, { childList: true, subtree: true });
});
