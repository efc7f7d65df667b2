/**
 * The drawing of the map: this node in the middle, peers at its left and visitors' domains at its right;
 * on a narrow page all in one column below it. Each domain is a link; only what has changed is exchanged, so
 * the keyboard's focus stays where it is.
 */

import { count } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST = 12; // of each side
const ROW = 64;
const BOX = { width: 270, height: 50 };
const NARROW = 860; // px
const LANES = { well: 12, fault: 20, visitors: 28 }; // px before the box, where all stand in one column

export class DomainMap {
  #place;
  #domain;
  #svg = null;
  #shape = "";
  #boxes = new Map(); // key -> {link, title, lines, edge}
  #last = [[], []];

  constructor(place, domain) {
    this.#place = place;
    this.#domain = domain;
    new ResizeObserver(() => this.show(...this.#last)).observe(place);
  }

  /** Draw; how many domains there was no room for. */
  show(peers, visitors) {
    this.#last = [peers, visitors];
    const left = peers.slice(0, MOST).map((each) => ({
      ...each,
      key: `peer ${each.domain}`,
      kind: each.is_well ? "well" : "fault",
      about: each.state,
    }));
    const right = visitors.slice(0, MOST).map((each) => ({
      ...each,
      key: `visitors ${each.domain}`,
      kind: "visitors",
      about: `${count(each.sessions)} visitor${each.sessions === 1 ? "" : "s"}`,
    }));
    const isNarrow = this.#place.clientWidth < NARROW;
    const shape = JSON.stringify([
      isNarrow,
      isNarrow && this.#place.clientWidth,
      left.map(({ key }) => key),
      right.map(({ key }) => key),
    ]);
    if (shape !== this.#shape) this.#draw(left, right, isNarrow);
    this.#shape = shape;
    for (const each of [...left, ...right]) this.#fill(each);
    return peers.length - left.length + visitors.length - right.length;
  }

  #draw(left, right, isNarrow) {
    const focused = document.activeElement?.dataset?.key;
    this.#boxes.clear();
    const rows = isNarrow ? left.length + right.length : Math.max(left.length, right.length, 1);
    const width = isNarrow ? Math.max(260, this.#place.clientWidth) : 900;
    const height = isNarrow ? (rows + 1) * ROW + 8 : Math.max(rows, 2) * ROW;
    this.#svg = make("svg", {
      viewBox: `0 0 ${width} ${height}`,
      class: "domains-map",
      role: "group",
      "aria-label": `${this.#domain} and the domains it exchanges messages with`,
    });
    const own = isNarrow
      ? { x: 4, y: 4 }
      : { x: (width - BOX.width) / 2, y: (height - BOX.height) / 2 };
    const edges = make("g", { "aria-hidden": "true" });
    this.#svg.append(edges);
    const side = (all, at) =>
      all.forEach((each, index) => this.#box(each, at(index), own, edges, isNarrow));
    if (isNarrow) {
      side([...left, ...right], (index) => ({
        x: width - BOX.width - 4,
        y: (index + 1) * ROW + 8,
      }));
    } else {
      const top = (all) => (height - all.length * ROW) / 2 + (ROW - BOX.height) / 2;
      side(left, (index) => ({ x: 4, y: top(left) + index * ROW }));
      side(right, (index) => ({ x: width - BOX.width - 4, y: top(right) + index * ROW }));
    }
    const node = make("g", { class: "domains-own" });
    node.append(
      make("rect", { ...own, ...BOX, rx: 6 }),
      text(shortened(this.#domain), own.x + BOX.width / 2, own.y + 22, "domains-name"),
    );
    node.append(text("this node", own.x + BOX.width / 2, own.y + 40, "domains-about"));
    this.#svg.append(node);
    this.#place.replaceChildren(this.#svg);
    if (focused) this.#svg.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #box(each, at, own, edges, isNarrow) {
    const edge = make("path", {
      class: "domains-line",
      d: way(at, own, isNarrow ? LANES[each.kind] : 0),
      fill: "none",
    });
    edges.append(edge);
    const holder = each.url ? make("a", { href: each.url }) : make("g", { role: "img" });
    holder.dataset.key = each.key;
    holder.classList.add("domains-box");
    const middle = at.x + BOX.width / 2;
    const about = text("", middle, at.y + 38, "domains-about");
    holder.append(
      make("rect", { ...at, ...BOX, rx: 6 }),
      text(shortened(each.domain), middle, at.y + 20, "domains-name"),
      about,
    );
    this.#svg.append(holder);
    this.#boxes.set(each.key, { holder, about, edge });
  }

  #fill({ key, domain, kind, about: words, sent, received }) {
    const { holder, about, edge } = this.#boxes.get(key);
    const rates = `${count(sent)}/s to, ${count(received)}/s from`;
    set(holder, "data-state", kind);
    set(holder, "aria-label", `${domain}: ${words}; ${rates}`);
    set(edge, "data-state", kind);
    set(edge, "data-busy", sent + received > 0);
    const said = `${kind === "fault" ? "▲ " : ""}${words} · ${rates}`;
    if (about.textContent !== said) about.textContent = said;
  }
}

/** From the middle of this node's side to the domain's. */
function way(at, own, lane) {
  if (lane)
    return `M ${at.x - lane} ${own.y + BOX.height / 2} V ${at.y + BOX.height / 2} H ${at.x}`;
  const isLeft = at.x < own.x;
  const from = isLeft ? own.x : own.x + BOX.width;
  const to = isLeft ? at.x + BOX.width : at.x;
  const [middle, y] = [(from + to) / 2, at.y + BOX.height / 2];
  return `M ${from} ${own.y + BOX.height / 2} C ${middle} ${own.y + BOX.height / 2} ${middle} ${y} ${to} ${y}`;
}

function make(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function text(content, x, y, kind) {
  const element = make("text", { x, y, "text-anchor": "middle", class: kind });
  element.textContent = content;
  return element;
}

function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function shortened(name) {
  return name.length > 26 ? `${name.slice(0, 12)}…${name.slice(-13)}` : name;
}
