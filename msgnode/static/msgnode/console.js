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

// The theme's page has no main landmark, and buttons that are spans without a name. The first key
// leads past the menu.
document.addEventListener("DOMContentLoaded", () => {
  const main = document.getElementById("main");
  main?.setAttribute("role", "main");
  main?.setAttribute("tabindex", "-1");
  document.querySelector(".console-skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    main?.focus();
  });
});

// Enter in the search opens the first hit, where none is chosen: at once, or when it is found.
let found = ""; // the term whose hits are shown
let isAwaited = false;
function openFirstHit() {
  isAwaited = false;
  const hit = document.querySelector("#command-results-list a");
  if (hit) location.assign(hit.href);
}
document.addEventListener(
  "keydown",
  (event) => {
    if (event.target.id !== "search-input-command") return;
    isAwaited = false;
    if (event.key !== "Enter" || document.querySelector("#command-results-list .active")) return;
    event.stopPropagation(); // the theme fails where nothing is chosen
    event.preventDefault();
    if (found && found === event.target.value) openFirstHit();
    else isAwaited = true;
  },
  true,
);
document.addEventListener("htmx:afterSettle", ({ detail }) => {
  const term = detail.requestConfig?.parameters?.s;
  if (term === undefined) return; // of something else than the search
  found = document.querySelector("#command-results-list a") ? term : "";
  const box = document.getElementById("search-input-command");
  if (isAwaited && found && found === box?.value) openFirstHit();
});

// Names for what Django and the theme leave without: heads of columns and rooms that scroll, controls
// in tables of inlines, by their column, and icons whose name needs a role.
function nameRoomsAndHeads() {
  for (const head of document.querySelectorAll(
    ".inline-group thead th, [data-inline-type] thead th",
  )) {
    if (head.textContent.trim()) continue;
    const name = Object.assign(document.createElement("span"), { textContent: "Delete" });
    name.className = "console-unseen";
    head.append(name);
  }
  for (const room of document.querySelectorAll(".simplebar-content-wrapper")) {
    const name = room.closest("#nav-sidebar") ? "Menu" : room.closest("[id]")?.id || "Hits";
    if (room.getAttribute("aria-label") === "scrollable content")
      room.setAttribute("aria-label", `${name.replaceAll("-", " ")}, scrollable`);
  }
}
function nameInlines() {
  nameRoomsAndHeads();
  for (const icon of document.querySelectorAll(".help-tooltip[aria-label]:not([role])"))
    icon.setAttribute("role", "img");
  const unnamed = "td input:not([type=hidden], [aria-label]), td select:not([aria-label])";
  for (const control of document.querySelectorAll(unnamed))
    if (control.id && !control.labels?.length) nameByColumn(control);
}

function nameByColumn(control) {
  const field = [...control.closest("td").classList].find((each) => each.startsWith("field-"));
  const name = field ? field.slice("field-".length) : control.name.split("-").pop();
  if (name) control.setAttribute("aria-label", name.replaceAll("_", " "));
}

window.addEventListener("load", () => {
  nameInlines();
  new MutationObserver(nameInlines).observe(document.body, { childList: true, subtree: true });
});
