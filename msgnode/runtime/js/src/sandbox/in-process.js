/**
 * No boundary: a component in the core's own realm. For the stub of the home domain only, which comes
 * from where the runtime itself comes from.
 */

import { openInside } from "./inside.js";
import { exportsOf } from "./module-forms.js";

const MODULE = /\b(?:export|import)\b/;

/**
 * A channel to an inside in this very realm.
 *
 * @param importModule resolves the text of an ES module, and the component's configuration, with its exports
 */
export function inProcessChannel(importModule) {
  const load = (source, config) => exportsHere(source, (text) => importModule(text, config));
  const channel = { onFrame: () => {}, onClose: () => {}, kill: () => (isOpen = false) };
  let isOpen = true;
  const receive = openInside((frame) => isOpen && channel.onFrame(frame), load);
  channel.send = (frame) => isOpen && receive(frame);
  return channel;
}

/** The exports of a component, whatever its form. A page may forbid scripts to be made of text: an ES module is none. */
async function exportsHere(source, importModule) {
  if (MODULE.test(source)) {
    try {
      const exported = await importModule(source);
      if (Object.keys(exported).length) return exported;
    } catch {
      // no ES module, although it has one of its words; or one that fails, which is told now
    }
  }
  return (await exportsOf(source, importModule)).exported;
}
