/**
 * Joins modules of this package to one script, for sandboxes that may import nothing.
 *
 * The modules are plain: imports and exports stand at the beginning of a line, imports on one line, and
 * no two modules share a top-level name.
 */

/** What runs inside a sandbox, those first that others need. */
export const INSIDE = [
  "messages.js",
  "clock.js",
  "answers.js",
  "bus.js",
  "minibus.js",
  "sandbox/limits.js",
  "sandbox/module-forms.js",
  "sandbox/inside.js",
];

/** One script of these modules' texts. */
export function joined(texts) {
  return texts
    .map((text) => text.replace(/^import .*$/gm, "").replace(/^export (default )?/gm, ""))
    .join("\n");
}
