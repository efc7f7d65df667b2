/** Rows, links and signs of pages that move; what stands is exchanged only where it differs. */

/** Exchange what stands in a place only if it differs, and not under the keyboard's focus. */
export function keep(place, parts) {
  if (place.contains(document.activeElement)) return;
  const fresh = document.createElement(place.tagName);
  fresh.append(...parts);
  if (place.innerHTML !== fresh.innerHTML) place.replaceChildren(...fresh.childNodes);
}

/** What says in a place how the page is; what it says already is not said again. */
export function sayer(place) {
  return (text) => {
    if (place.textContent !== text) place.textContent = text;
  };
}

/** A row whose first cell is its head. @param kinds the class of each cell, if it has one */
export function row(cells, kinds) {
  const made = document.createElement("tr");
  cells.forEach((content, index) => {
    const cell = document.createElement(index ? "td" : "th");
    if (!index) cell.scope = "row";
    if (kinds[index]) cell.className = kinds[index];
    cell.append(content);
    made.append(cell);
  });
  return made;
}

/** A row of figures; one cell alone is a sentence over all columns. */
export function line(cells) {
  const made = row(cells, ["console-wrap", ...cells.slice(1).fill("console-right")]);
  if (cells.length === 1) made.firstChild.colSpan = 5;
  return made;
}

export function button(text, act) {
  const made = Object.assign(document.createElement("button"), {
    type: "button",
    textContent: text,
    className: "border border-base-200 dark:border-base-700 font-medium px-3 py-2 rounded-default",
  });
  made.addEventListener("click", act);
  return made;
}

export function link(text, url) {
  if (!url) return text;
  const anchor = document.createElement("a");
  anchor.className = "text-link";
  anchor.href = url;
  anchor.textContent = text;
  return anchor;
}

/** A sign that is told apart without its colour. */
export function mark(how) {
  const sign = document.createElement("span");
  sign.setAttribute("aria-hidden", "true");
  sign.textContent = how === "well" ? "●" : "▲";
  return sign;
}
