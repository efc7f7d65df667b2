/**
 * Lists and pages of the console that follow changes without losing what the operator has begun.
 *
 * Rules
 * - The page is fetched again while it is in view, five seconds after the last answer, and not while
 *   it is paused. A page that cannot be had is said; the next one is tried later and later.
 * - A row is known by its check box, else by its first link. Cells are exchanged only where they
 *   differ, and never under the keyboard's focus; check boxes, scrolling and open menus stay.
 * - A row that has left the list is greyed and stays until the page is loaded anew, GONE at most.
 */

const EVERY = 5000; // ms
const LONGEST = 60_000;
const GONE = 50;

const keyOf = (row) =>
  row.querySelector("input.action-select")?.value ??
  row.querySelector("a[href]")?.getAttribute("href") ??
  "";
const rowsOf = (root) => [...root.querySelectorAll("#result_list > tbody")];

/** Take what has changed of a fresh row into the one that is shown. */
function mend(row, fresh) {
  row.classList.remove("console-gone");
  row.inert = false;
  const cells = [...row.querySelectorAll(":scope > tr > *")];
  const others = [...fresh.querySelectorAll(":scope > tr > *")];
  if (cells.length !== others.length) return;
  cells.forEach((cell, index) => {
    const other = others[index];
    if (cell.querySelector("input, select, button") || cell.contains(document.activeElement))
      return;
    if (cell.innerHTML !== other.innerHTML) cell.innerHTML = other.innerHTML;
  });
}

/** Make the list that is shown say what a fresh page says; the number of rows that have left. */
export function mergeList(root, fresh) {
  const table = root.querySelector("#result_list");
  const shown = new Map(rowsOf(root).map((row) => [keyOf(row), row]));
  let before = table.tHead ?? null;
  for (const row of rowsOf(fresh)) {
    const known = shown.get(keyOf(row));
    const here = known ?? document.importNode(row, true);
    if (known) mend(known, row);
    shown.delete(keyOf(row));
    const isInPlace = before
      ? before.nextElementSibling === here
      : table.firstElementChild === here;
    if (!known || (!isInPlace && !here.contains(document.activeElement))) {
      if (before) before.after(here);
      else table.prepend(here);
    }
    before = here;
  }
  let gone = 0;
  for (const row of shown.values()) {
    gone += 1;
    if (gone > GONE && !row.contains(document.activeElement)) row.remove();
    else {
      row.classList.add("console-gone");
      for (const box of row.querySelectorAll("input.action-select")) box.checked = false;
      row.title = "No longer in this list";
    }
  }
  return gone;
}

/** Exchange the fields that cannot be edited for those of a fresh page. */
export function mergeDetail(root, fresh) {
  const others = fresh.querySelectorAll("#content-main fieldset, [data-live-part]");
  root.querySelectorAll("#content-main fieldset, [data-live-part]").forEach((part, index) => {
    const other = others[index];
    const isEdited = part.querySelector("input:not([type=hidden]), select, textarea");
    if (!other || isEdited || part.contains(document.activeElement)) return;
    if (part.innerHTML !== other.innerHTML) part.innerHTML = other.innerHTML;
  });
}

function follow(bar) {
  const [button, status] = [bar.querySelector("button"), bar.querySelector("[role=status]")];
  const isList = "liveList" in bar.dataset;
  let isPaused = false;
  let wait = EVERY;
  let timer;

  const again = () => {
    clearTimeout(timer);
    timer = setTimeout(look, wait);
  };
  async function look() {
    if (isPaused || document.visibilityState !== "visible") return;
    try {
      const answer = await fetch(location.href, {
        headers: { "X-Live": "1" },
        signal: AbortSignal.timeout(20_000),
      });
      if (answer.redirected || !answer.ok)
        throw new Error(
          answer.redirected ? "you are logged out" : `the node answers ${answer.status}`,
        );
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (isPaused) return;
      show(fresh);
      wait = EVERY;
    } catch (error) {
      wait = Math.min(wait * 2, LONGEST);
      const why =
        error.name === "TypeError" || error.name === "TimeoutError"
          ? "the node does not answer"
          : error.message;
      status.textContent = `not up to date: ${why}`;
    }
    again();
  }
  function show(fresh) {
    if (!isList) mergeDetail(document, fresh);
    else if (document.querySelector("#result_list")) {
      const gone = mergeList(document, fresh);
      status.textContent = gone
        ? `follows changes; ${gone} greyed row${gone === 1 ? " is" : "s are"} no longer in the list`
        : "follows changes";
      return;
    } else if (fresh.querySelector("#result_list") && !document.activeElement?.matches("input"))
      location.reload();
    status.textContent = "follows changes";
  }
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.textContent = isPaused ? "Go on" : "Pause";
    status.textContent = isPaused ? "paused" : "follows changes";
    if (!isPaused) look();
  });
  document.addEventListener("visibilitychange", again);
  document.addEventListener("live:changed", () => {
    if (!isPaused) {
      wait = EVERY;
      again();
    }
  });
  bar.hidden = false;
  again();
}

for (const bar of document.querySelectorAll("[data-live-list], [data-live-detail]")) follow(bar);
