/** Rows, links and signs of pages that move; what stands is exchanged only where it differs. */

/** Exchange what stands in a place only if it differs, and not under the keyboard's focus. */
export function keep(place, parts) {
  if (place.contains(document.activeElement)) return;
  const fresh = document.createElement(place.tagName);
  fresh.append(...parts);
  if (place.innerHTML !== fresh.innerHTML) place.replaceChildren(...fresh.childNodes);
}

export function line(cells) {
  const row = document.createElement("tr");
  cells.forEach((cell, index) => {
    const element = document.createElement(index ? "td" : "th");
    if (index) element.className = "console-right";
    else {
      element.scope = "row";
      element.className = "console-wrap";
    }
    if (cells.length === 1) element.colSpan = 5;
    element.append(cell);
    row.append(element);
  });
  return row;
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
