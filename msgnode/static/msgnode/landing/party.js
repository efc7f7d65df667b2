/**
 * A runtime of the example and its card: its bus, the state of its stub, the switch of its line.
 */

import { Runtime, newId } from "../runtime/index.js";
import { explain } from "./explain.js";
import { Line } from "./line.js";

const PULSE = { duration: 420, easing: "ease-in-out" };

export class Party {
  onGap = () => {};

  constructor(name, domain, { onFrame, onState, token }) {
    this.name = name;
    this.domain = domain;
    this.runtimeURL = `runtime://${domain}/${name.toLowerCase()}-${newId()}`;
    this.card = document.querySelector(`[data-party="${name.toLowerCase()}"]`);
    this.line = new Line((isOut, message, request) => {
      onFrame(this, isOut, message, explain(name, isOut, message, request));
      this.#pulse(isOut);
    }, token);
    this.#onState = onState;
    this.#switch = this.card.querySelector(".line");
    this.#switch.addEventListener("click", () => this.#toggle());
    this.#track = document.querySelector(`[data-track="${name.toLowerCase()}"]`);
  }

  #onState;
  #switch;
  #track;

  /** Load the stub from the node's catalogue and have it connect. */
  async start() {
    const { domain, runtimeURL } = this;
    this.runtime = new Runtime({
      domain,
      runtimeURL,
      catalogues: { [domain]: location.origin },
      stubConfig: { [domain]: { WebSocket: this.line.Socket } },
    });
    this.bus = this.runtime.bus;
    this.bus.addListener(`${runtimeURL}/status`, ({ body }) => body.resource && this.#status(body));
    await this.runtime.logIn();
    this.#switch.disabled = false;
  }

  /** Ask a component of the node or another runtime; resolves with the body of the answer. */
  ask(type, to, body, from = `${this.runtimeURL}/sm`) {
    return this.bus.request({ type, from, to, body });
  }

  say(fact) {
    this.card.querySelector("[data-fact]").textContent = fact;
  }

  #status({ value, desc = "" }) {
    if (value === "gap") {
      Promise.resolve(this.onGap()).catch((error) => this.say(error.message));
      return;
    }
    const pill = this.card.querySelector(".state");
    pill.dataset.state = value;
    pill.textContent = value;
    pill.title = desc;
    this.#onState(this, value, desc);
  }

  #toggle() {
    const isMended = this.line.isCut;
    if (isMended) this.line.mend();
    else this.line.cut();
    this.#switch.setAttribute("aria-checked", String(isMended));
    this.#track.toggleAttribute("data-cut", !isMended);
    if (isMended) this.runtime.logIn().catch(({ message }) => this.say(message));
  }

  /** A dot that runs along the line as a message passes. */
  #pulse(isOut) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || this.#track.children.length > 4)
      return;
    const isWide = this.#track.offsetWidth > this.#track.offsetHeight;
    const half = (isWide ? this.#track.offsetWidth : this.#track.offsetHeight) / 2;
    const towardsEnd = isOut === (this.name === "Alice") ? 1 : -1;
    const at = (where) => ({ translate: isWide ? `${where}px 0` : `0 ${where}px` });
    const dot = document.createElement("b");
    this.#track.append(dot);
    dot.animate([at(-towardsEnd * half), at(towardsEnd * half)], PULSE).onfinish = () =>
      dot.remove();
  }
}
