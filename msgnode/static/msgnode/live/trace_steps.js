/** A trace in rows: the steps of a message at one worker, and how its policies decided. */

import { row } from "./parts.js";
import { bytes, microseconds } from "./words.js";

/** One step, as a row. `began`: when the message was taken, in seconds since the epoch. */
export function step(part, span, index, began) {
  const name = index
    ? span.name
    : `${part.why === "link" ? "arrives" : part.type}: ${part.outcome || "under way"}`;
  const facts = Object.entries(span.facts).map(([key, value]) =>
    key === "bytes" ? bytes(value) : `${key}: ${value}`,
  );
  if (!index && part.further) facts.push(`${part.further} further listeners`);
  return row(
    [
      `${index ? "· " : ""}${span.is_error ? "▲ " : ""}${name}`,
      index || span.at > began ? `+${microseconds(Math.max(0, span.at - began) * 1e6)}` : "0",
      microseconds(span.seconds * 1e6),
      part.worker,
      facts.join("; "),
    ],
    ["", "console-right", "console-right", "", "console-wrap"],
  );
}

/** One part of the tree of a decision, with those below it. */
export function branch({ label, result, note, children }) {
  const place = document.createElement("details");
  place.className = "console-branch";
  place.open = result !== "false" && result !== "notApplicable";
  const summary = document.createElement("summary");
  const code = document.createElement("code");
  code.textContent = label;
  const strong = document.createElement("strong");
  strong.textContent = result;
  summary.append(code, " — ", strong, note ? ` (${note})` : "");
  place.append(summary, ...children.map(branch));
  return place;
}
