/**
 * A panel for who debugs: what there is in a runtime, and why an address is or is not reached.
 *
 *   import { mountPanel } from "msgnode-runtime/panel";
 *   const panel = mountPanel(runtime, document.querySelector("#debug")); // panel.remove() ends it
 *
 * Rules
 * - It shows what runtime.state() tells, once a second, and changes nothing in the runtime.
 * - Whatever it shows may be a stranger's: it is text, never markup.
 * - It lives in a shadow root with a style of its own, which a page's policy (CSP) without inline styles allows.
 */

const EVERY = 1_000; // ms
const MOST = 50; // rows of a list

const STYLE = `
:host { display: block; color-scheme: light dark; --ink: #1d1a2b; --soft: #5a566c; --edge: #dcd8e8; --card: #fff;
  --sunk: #f3f1f9; --good: #0a6f63; --wait: #8a5200; --bad: #b3261e; --accent: #4c3fd6;
  color: var(--ink); font: 0.94rem/1.5 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { :host { --ink: #efedf7; --soft: #b0abc4; --edge: #383349; --card: #1c1926;
  --sunk: #262232; --good: #6fd8c8; --wait: #f2bb66; --bad: #ff9d95; --accent: #b3a8ff; } }
* { box-sizing: border-box; }
section { margin: 0 0 1rem; padding: 0.8rem 1rem; border: 1px solid var(--edge); border-radius: 12px; background: var(--card); }
h2 { margin: 0 0 0.4rem; font-size: 1rem; }
h2 small, .soft { color: var(--soft); font-weight: 400; font-size: 0.88rem; }
ul, dl, p { margin: 0; padding: 0; list-style: none; }
li { padding: 0.4rem 0; border-top: 1px solid var(--edge); }
li:first-child { border-top: 0; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 0.86rem; overflow-wrap: anywhere; }
p, dd { overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: minmax(5rem, max-content) 1fr; gap: 0.2rem 0.8rem; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 1rem; align-items: start; }
.state { display: inline-block; margin-right: 0.5rem; padding: 0 0.55rem; border-radius: 1rem; background: var(--sunk);
  color: var(--wait); font-size: 0.85rem; font-weight: 600; }
.state[data-is=good] { color: var(--good); }
.state[data-is=bad] { color: var(--bad); }
form { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: end; }
label { flex: 1 1 100%; color: var(--soft); font-size: 0.88rem; }
input { flex: 1 1 14rem; min-width: 0; }
input, button { font: inherit; min-height: 2.2rem; padding: 0.2rem 0.7rem; border: 1px solid var(--soft); border-radius: 8px;
  background: var(--sunk); color: inherit; }
button { cursor: pointer; }
summary { cursor: pointer; color: var(--soft); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
#told dl { margin-top: 0.7rem; }`;

const GOOD = ["live", "channel", "here", "claimed", "registered"];
const BAD = ["failed", "deployment-failed", "disconnected", "none"];

/**
 * Show a runtime in an element.
 *
 * @param runtime a Runtime, or what has its state() and explain(), also as promises
 * @param element whose content the panel takes
 * @param options {every: ms between two looks}
 * @returns {refresh(): look now, explain(address): as if it had been typed, remove()}
 * @throws TypeError
 */
export function mountPanel(runtime, element, { every = EVERY } = {}) {
  if (typeof runtime?.state !== "function" || typeof runtime.explain !== "function")
    throw new TypeError("runtime is a Runtime, with state() and explain().");
  if (typeof element?.attachShadow !== "function")
    throw new TypeError("element is an element of the page that can have a shadow root.");
  if (!(every >= 100)) throw new TypeError("every is a number of milliseconds, from 100 on.");
  const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
  const facts = made("div");
  const asking = question(runtime);
  root.replaceChildren(asking.section, facts);
  let before = "";
  let isOver = false;
  let timer;
  const refresh = async () => {
    const now = await told(() => runtime.state());
    const text = JSON.stringify(now);
    if (isOver || text === before) return;
    before = text;
    const opened = new Set([...facts.querySelectorAll("details[open]")].map(({ id }) => id));
    facts.replaceChildren(...(now.error ? [part("Runtime", line("", now.error))] : shown(now)));
    for (const each of facts.querySelectorAll("details")) each.open = opened.has(each.id);
  };
  const next = async () => {
    await refresh();
    if (!isOver) timer = setTimeout(next, every);
  };
  next();
  return {
    refresh,
    explain: (address) => asking.ask(address),
    remove: () => {
      isOver = true;
      clearTimeout(timer);
      root.replaceChildren();
    },
  };
}

/** What a runtime told, or {error}. */
async function told(call) {
  try {
    return await call();
  } catch (error) {
    return { error: String(error?.message ?? error) };
  }
}

/** The form in which an address is explained. */
function question(runtime) {
  const input = made("input", { id: "address", autocomplete: "off", placeholder: "hyperty://…" });
  const answer = made("dl");
  const form = made("form", {}, [
    made("label", { htmlFor: "address" }, "Why is an address reached or not?"),
    input,
    made("button", {}, "Explain"),
  ]);
  const ask = async (address) => {
    input.value = address;
    const { way, why, error, stub, isHere, isClaimed, isRegistered } = await told(() =>
      runtime.explain(address),
    );
    const facts = error
      ? { error }
      : {
          why,
          here: isHere,
          claimed: isClaimed,
          registered: isRegistered,
          stub: stub?.url || stub,
        };
    answer.replaceChildren(
      ...(way ? [made("dt", {}, "way"), made("dd", {}, [pill(way)])] : []),
      ...pairs(facts),
    );
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(input.value.trim());
  });
  const status = made("div", { id: "told", role: "status" }, [answer]);
  return { section: made("section", {}, [form, status]), ask };
}

/** The parts of a state. */
function shown(state) {
  const { hyperties, routes, sandboxes, channels, errors, counters } = state;
  const who = { url: state.runtime, "logged in": state.user || "nobody" };
  const counted = Object.entries(counters);
  return [
    part("Runtime", made("dl", {}, pairs(who))),
    made("div", { className: "grid" }, [
      part("Hyperties", rows(hyperties, hyperty), hyperties.length),
      part("Stubs", rows(routes, route), routes.length),
      part("Channels", rows(channels, channel, state.whyNoChannels), channels.length),
      part("Sandboxes", rows(sandboxes, sandbox), sandboxes.length),
    ]),
    part("Last errors", rows([...errors].reverse(), fault), errors.length),
    part(
      "Counters",
      counted.length ? made("dl", {}, pairs(counters)) : line("", "None."),
      counted.length,
    ),
  ];
}

const hyperty = ({ name, url, isRegistered }) => [
  line(isRegistered ? "registered" : "claimed", name),
  code(url),
];

const route = (each) => [
  line(each.status || "not loaded", each.to, each.version && `version ${each.version}`),
  code(each.stub),
  each.desc && line("", each.desc),
  line("", `${each.unanswered} unanswered, ${each.waiting} waiting`),
  each.claims.length > 0 &&
    made("details", { id: each.stub }, [
      made("summary", {}, `${each.claims.length} addresses at its node`),
      rows(each.claims, (claim) => [code(claim)]),
    ]),
];

const channel = ({ runtime, stub, state, way }) => [
  line(way === "channel" ? "channel" : state, `sent by ${way}`),
  code(runtime),
  line("", `stub ${stub}`),
];

const sandbox = ({ name, components }) => [line("", name), ...components.map(code)];

const fault = ({ at, reason, text }) => [line("", at.slice(11, 19), reason), made("p", {}, text)];

// --- elements ---------------------------------------------------------------------------------------

function part(title, content, count) {
  const number = count === undefined ? "" : ` ${count}`;
  return made("section", {}, [made("h2", {}, [title, made("small", {}, number)]), content]);
}

function rows(all, row, why = "") {
  if (!all.length) return line("", why ? `None: ${why}` : "None.");
  const list = all.slice(0, MOST).map((each) => made("li", {}, row(each)));
  if (all.length > MOST) list.push(made("li", {}, `and ${all.length - MOST} more`));
  return made("ul", {}, list);
}

function pairs(facts) {
  return Object.entries(facts)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value]) => [
      made("dt", {}, name),
      made("dd", {}, [String(value).includes("://") ? code(value) : word(value)]),
    ]);
}

function word(value) {
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

function line(state, text, beside = "") {
  const small = beside ? [" ", made("span", { className: "soft" }, beside)] : [];
  return made("p", { className: state ? "" : "soft" }, [state && pill(state), text, ...small]);
}

function pill(state) {
  const found = made("span", { className: "state" }, state);
  found.dataset.is = GOOD.includes(state) ? "good" : BAD.includes(state) ? "bad" : "";
  return found;
}

function code(text) {
  return made("code", {}, text);
}

/** An element with text or other elements in it. */
function made(tag, properties = {}, content = []) {
  const { role, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  if (role) element.setAttribute("role", role);
  element.append(...[content].flat().filter(Boolean));
  return element;
}
