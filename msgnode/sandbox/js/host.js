/**
 * The inside of a sandbox: loads one script and lends it what the node has: WebSockets and requests, and to a
 * protostub a bus, to a connector secrets by name, a store, and who waits for what happens in its network.
 *
 * Deno runs it without any permission. What the script sees is made here, nothing of the machine. That names such as `Deno` are taken away is a second line of defence; that the
 * process may do nothing is the first. The lines on stdin and stdout: msgnode/sandbox/pipe.py.
 *
 * Forms of stubs: module-forms.js, which the runtimes use as well.
 */

import { exportsOf, startedStub } from "../../runtime/js/src/sandbox/module-forms.js";

const machine = globalThis.Deno;
const { parse, stringify } = JSON;
const encoder = new TextEncoder();
const encode = encoder.encode.bind(encoder);
const decoder = new TextDecoder();
const decode = decoder.decode.bind(decoder);
const read = machine.stdin.read.bind(machine.stdin);
const writeSync = machine.stdout.writeSync.bind(machine.stdout);
const exit = machine.exit.bind(machine);

const TEXT = 300; // characters of an error or a log line that are told

const say = (operation) => sayText(stringify(operation));

function sayText(text) {
  let bytes = encode(text + "\n");
  while (bytes.length) bytes = bytes.subarray(writeSync(bytes));
}

function textOf(error) {
  let text;
  try {
    text = String(error?.message ?? error);
  } catch {
    text = "an error that cannot be shown";
  }
  return text.slice(0, TEXT);
}

const log = (error) => say({ op: "log", text: textOf(error) });

for (const name of [
  "Deno",
  "Worker",
  "fetch",
  "EventSource",
  "WebSocketStream",
  "process",
  "Buffer",
  "global",
  "prompt",
  "alert",
  "confirm",
  "close",
  "caches",
  "localStorage",
  "sessionStorage",
  "BroadcastChannel",
  "navigator",
]) {
  delete globalThis[name];
}
const silent = () => {};
globalThis.console = Object.freeze({
  log: silent,
  info: silent,
  debug: silent,
  warn: silent,
  error: silent,
  trace: silent,
  group: silent,
  groupEnd: silent,
  table: silent,
  time: silent,
  timeEnd: silent,
  assert: silent,
});
globalThis.addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  log(event.reason);
});
globalThis.addEventListener("error", (event) => {
  event.preventDefault();
  log(event.error ?? event.message);
});

// --- WebSockets that the node has -------------------------------------------------------------------

const sockets = new Map();
let socketNumbers = 0;
const CONNECTING = 0,
  OPEN = 1,
  CLOSING = 2,
  CLOSED = 3;

class NodeSocket extends EventTarget {
  static CONNECTING = CONNECTING;
  static OPEN = OPEN;
  static CLOSING = CLOSING;
  static CLOSED = CLOSED;
  CONNECTING = CONNECTING;
  OPEN = OPEN;
  CLOSING = CLOSING;
  CLOSED = CLOSED;
  binaryType = "blob";
  extensions = "";
  protocol = "";
  readyState = CONNECTING;
  bufferedAmount = 0;
  onopen = null;
  onmessage = null;
  onerror = null;
  onclose = null;
  #number = ++socketNumbers;

  constructor(url, protocols = []) {
    super();
    this.url = String(url);
    sockets.set(this.#number, this);
    say({
      op: "ws-open",
      ws: this.#number,
      url: this.url,
      protocols: [protocols].flat().map(String),
    });
  }

  send(data) {
    if (this.readyState === CONNECTING) throw new Error("The WebSocket is not open yet.");
    if (this.readyState !== OPEN) return;
    if (typeof data !== "string") throw new TypeError("Only text can be sent from here.");
    say({ op: "ws-send", ws: this.#number, data });
  }

  close(code = 1000, reason = "") {
    if (this.readyState >= CLOSING) return;
    this.readyState = CLOSING;
    say({ op: "ws-close", ws: this.#number, code, reason: String(reason) });
  }

  happened({ event, data, code, reason, buffered, protocol }) {
    if (event === "buffered") {
      this.bufferedAmount = buffered;
    } else if (event === "open" && this.readyState === CONNECTING) {
      this.readyState = OPEN;
      this.protocol = protocol;
      this.#tell("open", new Event("open"));
    } else if (event === "message" && this.readyState === OPEN) {
      this.#tell("message", new MessageEvent("message", { data }));
    } else if (event === "close") {
      const wasOpen = this.readyState >= OPEN;
      sockets.delete(this.#number);
      this.readyState = CLOSED;
      if (!wasOpen) this.#tell("error", new Event("error"));
      this.#tell("close", new CloseEvent("close", { code, reason, wasClean: code === 1000 }));
    }
  }

  #tell(name, event) {
    try {
      this[`on${name}`]?.(event);
    } catch (error) {
      log(error);
    }
    this.dispatchEvent(event);
  }
}
Object.defineProperty(globalThis, "WebSocket", {
  value: NodeSocket,
  writable: true,
  configurable: true,
});

// --- HTTP requests that the node sends ----------------------------------------------------------------

const requests = new Map(); // number -> told its result
let requestNumbers = 0;

/** Send a request; `told` is called with {status, type, body}, or {status: 0, error}. Returns what gives it up. */
function request({ method, url, headers, body }, told) {
  const number = ++requestNumbers;
  requests.set(number, told);
  say({ op: "http", http: number, method, url: String(url), headers, body });
  return () => requests.delete(number) && say({ op: "http-abort", http: number });
}

function requestEnded(operation) {
  const told = requests.get(operation.http);
  requests.delete(operation.http);
  told?.(operation);
}

const methodOf = (method) => String(method ?? "GET").toUpperCase();
const plainText = (body) => {
  if (body === undefined || body === null) return "";
  if (typeof body !== "string") throw new TypeError("Only text can be sent from here.");
  return body;
};

globalThis.fetch = async (url, { method, headers, body, signal } = {}) => {
  const sent = { method: methodOf(method), url, body: plainText(body) };
  sent.headers = Object.fromEntries(new Headers(headers));
  const {
    status,
    type,
    body: text,
    error,
  } = await new Promise((resolve, reject) => {
    const giveUp = request(sent, resolve);
    const aborted = () => {
      giveUp();
      reject(signal.reason);
    };
    if (signal?.aborted) aborted();
    else signal?.addEventListener("abort", aborted, { once: true });
  });
  if (!status) throw new TypeError(`The request failed: ${error}`);
  const hasBody = ![204, 205, 304].includes(status);
  return new Response(hasBody ? text : null, { status, headers: { "Content-Type": type } });
};

/** Text only: there is no `responseType`, by which clients tell whether bytes can be had. */
globalThis.XMLHttpRequest = class XMLHttpRequest extends EventTarget {
  readyState = 0;
  status = 0;
  statusText = "";
  responseText = "";
  withCredentials = false;
  timeout = 0;
  #sent = null;
  #type = "";
  #giveUp = () => {};
  #timer;

  open(method, url) {
    this.#sent = { method: methodOf(method), url, headers: {} };
    this.#enter(1);
  }

  setRequestHeader(name, value) {
    this.#sent.headers[String(name)] = String(value);
  }

  send(body) {
    const sent = { ...this.#sent, body: plainText(body) };
    this.#giveUp = request(sent, (answer) => this.#answered(answer));
    if (this.timeout)
      this.#timer = setTimeout(() => {
        this.#giveUp();
        this.#failed("timeout");
      }, this.timeout);
  }

  abort() {
    clearTimeout(this.#timer);
    this.#giveUp();
    this.readyState = 0;
  }

  getResponseHeader(name) {
    return String(name).toLowerCase() === "content-type" && this.#type ? this.#type : null;
  }

  getAllResponseHeaders() {
    return this.#type ? `content-type: ${this.#type}\r\n` : "";
  }

  get response() {
    return this.responseText;
  }

  #answered({ status, type = "", body = "" }) {
    clearTimeout(this.#timer);
    if (!status) return this.#failed("error");
    Object.assign(this, { status, responseText: body });
    this.#type = type;
    for (const state of [2, 3, 4]) this.#enter(state);
    this.#happened("load");
    return this.#happened("loadend");
  }

  #failed(name) {
    this.status = 0;
    this.#enter(4);
    this.#happened(name);
    this.#happened("loadend");
  }

  #enter(state) {
    this.readyState = state;
    this.#happened("readystatechange");
  }

  #happened(name) {
    const event = new Event(name);
    try {
      this[`on${name}`]?.(event);
    } catch (error) {
      log(error);
    }
    this.dispatchEvent(event);
  }
};

// --- the bus that the stub sees -----------------------------------------------------------------------

const listeners = new Map();
let messageIds = 0;

const bus = Object.freeze({
  addListener(url, listener) {
    const all = listeners.get(url) ?? [];
    listeners.set(url, [...all, listener]);
    return {
      url,
      remove() {
        listeners.set(
          url,
          (listeners.get(url) ?? []).filter((each) => each !== listener),
        );
      },
    };
  },
  removeAllListenersOf(url) {
    listeners.delete(url);
  },
  postMessage(message) {
    if (message.id === undefined) message.id = ++messageIds;
    say({ op: "message", message });
    return message.id;
  },
});

function hand(message) {
  for (const listener of [...(listeners.get("*") ?? []), ...(listeners.get(message.to) ?? [])]) {
    try {
      listener(message);
    } catch (error) {
      log(error);
    }
  }
}

// --- loading ------------------------------------------------------------------------------------------

async function importModule(source) {
  let binary = "";
  for (const byte of encode(source)) binary += String.fromCharCode(byte);
  return await import(`data:text/javascript;base64,${btoa(binary)}`);
}

// --- a connector: what it sees, and the calls to it -----------------------------------------------------

const MOST = 1024 * 1024; // bytes of one result
const calls = new Map(); // number -> what aborts it
const asked = new Map(); // number -> [resolve, reject]
let askedNumbers = 0;
let connector;

/** Ask the node something, which it answers. */
function ask(operation) {
  const n = ++askedNumbers;
  const done = new Promise((resolve, reject) => asked.set(n, [resolve, reject]));
  say({ ...operation, n });
  return done;
}

const keep = (action, key = "", value = "", version = null) =>
  ask({ op: "store", action, key: String(key), value: String(value), version });
const happened = (event, value) => ask({ op: "network", event, value });

/** An entry is {value, version}, or null; `version` of put and delete: that the entry must still have. */
const store = Object.freeze({
  get: (key) => keep("get", key),
  put: (key, value, { version } = {}) => keep("put", key, value, version),
  delete: (key, { version } = {}) => keep("delete", key, "", version),
  list: (prefix = "") => keep("list", prefix),
});

function methodsOf(object) {
  const names = new Set();
  for (let each = object; each && each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    for (const name of Object.getOwnPropertyNames(each)) {
      if (name !== "constructor" && typeof object[name] === "function") names.add(name);
    }
  }
  return [...names].slice(0, 32);
}

async function loadConnector({ source, config, secrets }) {
  const { form, exported } = await exportsOf(source, importModule);
  const make = exported?.default ?? exported;
  if (typeof make !== "function") throw new Error("The script exports no function by default.");
  const revealed = new Map(Object.entries(secrets));
  const node = Object.freeze({
    secret: (name) => revealed.get(String(name)) ?? `{{secret:${name}}}`,
    store,
    news: (entries) => say({ op: "news", entries }),
    state: (state, text = "") => happened("state", { state, text: String(text) }),
    deliver: (message) => happened("message", message),
    call: (event) => happened("call", event),
    log,
  });
  connector = await make(node, config);
  if (!connector?.handles) throw new Error("What the script makes does not say what it `handles`.");
  return { kind: form, handles: String(connector.handles), methods: methodsOf(connector) };
}

async function call({ n, method, argument, context }) {
  const aborted = new AbortController();
  calls.set(n, aborted);
  try {
    const value = await connector[method](argument, { ...context, signal: aborted.signal });
    const text = stringify(value) ?? "null";
    if (text.length > MOST) throw new Error(`Its result has more than ${MOST} bytes.`);
    if (calls.has(n)) sayText(`{"op":"result","n":${n},"value":${text}}`);
  } catch (error) {
    const code =
      Number.isInteger(error?.code) && error.code >= 400 && error.code <= 599 ? error.code : 0;
    if (calls.has(n)) say({ op: "refused", n, code, desc: textOf(error) });
  }
  calls.delete(n);
}

// --- a stub ---------------------------------------------------------------------------------------------

let stub;
let loading = Promise.resolve(); // what comes before it is done waits for it

async function load({ source, stubURL, config }) {
  const { form, exported } = await exportsOf(source, importModule);
  stub = await startedStub(exported, stubURL, bus, config, Object.freeze({}));
  if (!stub) throw new Error("The stub's activate() gave no instance.");
  return form;
}

const operations = {
  load: (operation) => {
    loading = load(operation).then(
      (kind) => say({ op: "loaded", kind }),
      (error) => say({ op: "load-failed", error: textOf(error) }),
    );
  },
  "load-connector": (operation) => {
    loadConnector(operation).then(
      (found) => say({ op: "loaded", ...found }),
      (error) => say({ op: "load-failed", error: textOf(error) }),
    );
  },
  call,
  cancel: ({ n }) => {
    calls.get(n)?.abort();
    calls.delete(n);
  },
  store: ({ n, value, error }) => {
    const [resolve, reject] = asked.get(n) ?? [];
    asked.delete(n);
    if (error) reject?.(new Error(error));
    else resolve?.(value);
  },
  post: ({ message }) => hand(message),
  http: requestEnded,
  ws: (operation) => sockets.get(operation.ws)?.happened(operation),
  connect: () => loading.then(() => stub?.connect?.()),
  disconnect: () => loading.then(() => stub?.disconnect?.()),
  ping: ({ n }) => say({ op: "pong", n }),
};

// What the node has answered reaches who waits for it before the next call is made, though both come at once.
const { port1: turned, port2: turning } = new MessageChannel();
const turn = () =>
  new Promise((resolve) => {
    turned.onmessage = resolve;
    turning.postMessage(null);
  });
let hasAnswered = false;

async function take(line) {
  try {
    const operation = parse(line);
    if (hasAnswered && operation.op === "call") {
      await turn();
      hasAnswered = false;
    }
    hasAnswered ||= operation.op === "store" || operation.op === "http";
    Promise.resolve(operations[operation.op](operation)).catch(log);
  } catch (error) {
    log(error);
  }
}

const buffer = new Uint8Array(65_536);
let rest = "";
for (;;) {
  const length = await read(buffer);
  if (length === null) exit(0);
  const lines = (rest + decode(buffer.subarray(0, length), { stream: true })).split("\n");
  rest = lines.pop();
  hasAnswered = false;
  for (const line of lines) await take(line);
}
