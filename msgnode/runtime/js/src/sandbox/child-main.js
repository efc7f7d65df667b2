/**
 * Runs in the child process of a sandbox, after the inside: takes away what reaches beyond it, and
 * joins the inside with the core by lines of JSON on file descriptor 3.
 *
 * Sockets   The core dials. {socket: n, open: url}, {socket: n, send: text}, {socket: n, close: code}
 *           go out; {socket: n, event: "open" | "message" | "close" | "error" | "left", …} comes back.
 */

const HARMLESS = new Set([
  "buffer",
  "events",
  "path",
  "querystring",
  "string_decoder",
  "timers",
  "timers/promises",
  "url",
  "util",
]);

// eslint-disable-next-line no-unused-vars -- child-process.js calls it in the text it makes of this
async function childMain(openInside, exportsOf, limits) {
  const { Socket } = await import("node:net");
  const pipe = new Socket({ fd: 3, readable: true, writable: true });
  const write = pipe.write.bind(pipe);
  const send = (frame) => write(`${JSON.stringify(frame)}\n`);
  const exit = process.exit.bind(process);
  const importModule = (source) =>
    import(`data:text/javascript;base64,${Buffer.from(source).toString("base64")}`);
  const load = async (source) => (await exportsOf(source, importModule)).exported;
  const receive = openInside(send, load, limits);
  const sockets = new Map();
  let rest = "";
  globalThis.WebSocket = socketClass(send, sockets);
  for (const name of Object.keys(process.env)) delete process.env[name]; // the shell's own
  await takeAway();
  // Only now is anything read: no component is there before everything has been taken away.
  pipe.setEncoding("utf8");
  pipe.on("data", (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const frame = JSON.parse(line);
      if (frame.socket === undefined) receive(frame);
      else sockets.get(frame.socket)?.heard(frame);
    }
  });
  pipe.on("end", () => exit(0));
  pipe.on("error", () => exit(0));
  process.on("uncaughtException", () => {});
  process.on("unhandledRejection", () => {});
}

/** A WebSocket class whose sockets are the core's. */
function socketClass(send, sockets) {
  let numbers = 0;
  return class WebSocket extends EventTarget {
    static CONNECTING = 0;
    static OPEN = 1;
    static CLOSING = 2;
    static CLOSED = 3;
    #number = ++numbers;
    #untaken = []; // length of each text that the core's socket has not taken
    #given = 0; // how many it has
    readyState = 0;
    bufferedAmount = 0;
    onopen = null;
    onmessage = null;
    onerror = null;
    onclose = null;

    constructor(url, protocols = []) {
      super();
      this.url = String(new URL(url));
      sockets.set(this.#number, { heard: (frame) => this.#heard(frame) });
      send({ socket: this.#number, open: this.url, protocols: [protocols].flat() });
    }

    send(text) {
      if (typeof text !== "string") throw new TypeError("Only text is sent from a sandbox.");
      if (this.readyState === 0)
        throw new DOMException("The socket is not open.", "InvalidStateError");
      this.#untaken.push(text.length);
      this.bufferedAmount += text.length; // it leaves this realm, and not yet the machine
      if (this.readyState === 1) send({ socket: this.#number, send: text });
    }

    close(code = 1000, reason = "") {
      if (this.readyState > 1) return;
      this.readyState = 2;
      send({ socket: this.#number, close: code, reason });
    }

    #heard({ event, data, code, reason, taken, buffered }) {
      if (taken !== undefined) {
        this.#untaken.splice(0, taken - this.#given);
        this.#given = taken;
        this.bufferedAmount = this.#untaken.reduce((sum, length) => sum + length, buffered);
      }
      if (event === "left") return;
      if (event === "open") this.readyState = 1;
      if (event === "close") {
        this.readyState = 3;
        sockets.delete(this.#number);
      }
      const happened = Object.assign(new Event(event), { data, code, reason });
      this[`on${event}`]?.(happened);
      this.dispatchEvent(happened);
    }
  };
}

/**
 * Take away what reaches beyond the process. Files, processes and workers are refused by the
 * permission model, the network by the kernel where it can; this is for where it cannot.
 *
 * Only what everything else stands on is loaded for that: whatever connects or listens, TLS, HTTP and
 * HTTP/2 too, does it by a socket of `net`. Where Node.js lets us (from 22.15), a component can import
 * none of its modules but the HARMLESS ones.
 */
async function takeAway() {
  const refused = (name) =>
    function () {
      throw Object.assign(new Error(`${name} is not for a sandbox.`), {
        code: "ERR_ACCESS_DENIED",
      });
    };
  const names = ["net", "dgram", "dns", "dns/promises", "inspector", "v8"];
  const sqlite = await import("node:sqlite").catch(() => null); // opens files, whatever the permission model says
  if (sqlite)
    for (const name of Object.keys(sqlite.default))
      sqlite.default[name] = refused(`sqlite.${name}`);
  const modules = await Promise.all(
    names.map(async (name) => [name, (await import(`node:${name}`)).default]),
  );
  const { registerHooks, syncBuiltinESMExports } = await import("node:module");
  void [process.stdout, process.stderr]; // made before the classes they are made of are closed
  for (const [name, module] of modules) {
    for (const kind of [module.Socket, module.Server]) {
      for (const method of ["connect", "listen", "bind", "send", "addMembership"]) {
        if (kind?.prototype?.[method]) kind.prototype[method] = refused(`${name} ${method}`);
      }
    }
    for (const method of Object.getOwnPropertyNames(module.Resolver?.prototype ?? {})) {
      if (method !== "constructor")
        module.Resolver.prototype[method] = refused(`${name} ${method}`);
    }
    for (const key of Object.keys(module)) {
      if (typeof module[key] !== "function" || /^[A-Z]/.test(key)) continue;
      try {
        module[key] = refused(`${name}.${key}`);
      } catch {
        delete module[key];
      }
    }
  }
  for (const name of [
    "binding",
    "_linkedBinding",
    "dlopen",
    "kill",
    "_kill",
    "_debugProcess",
    "getBuiltinModule",
    "chdir",
    "loadEnvFile",
    "execve",
  ]) {
    if (typeof process[name] === "function") process[name] = refused(`process.${name}`);
  }
  syncBuiltinESMExports();
  registerHooks?.({
    resolve(specifier, context, next) {
      const found = next(specifier, context);
      if (!found.url.startsWith("node:") || HARMLESS.has(found.url.slice(5))) return found;
      return refused(found.url)();
    },
  });
  for (const name of ["fetch", "EventSource"]) globalThis[name] = refused(name);
}
