// Gives the search boxes of relations the names of their fields, which select2 leaves out.
window.addEventListener("load", () => {
  for (const select of document.querySelectorAll("select.admin-autocomplete")) {
    const name = select.labels[0]?.textContent.trim().replace(/\*$/, "");
    const box = select.parentElement.querySelector(".select2-selection");
    if (!name || !box) continue;
    box.setAttribute("aria-label", name);
    box.querySelector(".select2-selection__rendered")?.setAttribute("aria-label", name);
  }
});
