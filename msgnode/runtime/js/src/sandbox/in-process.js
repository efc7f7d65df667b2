/**
 * No boundary: a component in the core's own realm. For the stub of the home domain only, which comes
 * from where the runtime itself comes from.
 */

import { openInside } from "./inside.js";

/** A channel to an inside in this very realm. @param load as for openInside. */
export function inProcessChannel(load) {
  const channel = { onFrame: () => {}, onClose: () => {}, kill: () => (isOpen = false) };
  let isOpen = true;
  const receive = openInside((frame) => isOpen && channel.onFrame(frame), load);
  channel.send = (frame) => isOpen && receive(frame);
  return channel;
}
