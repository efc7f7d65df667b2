/**
 * The inside of a sandbox: loads components (stubs, hyperties), gives each a MiniBUS, and speaks with
 * the core over one port.
 *
 * Frames, both ways   {url, message}    a message of, or to, the component `url`
 *                     {message}         a command to hyperty-runtime://sandbox/internal, or its answer
 *   from the core     {ping: n}         answered by {pong: n} once everything before it was read
 *
 *   to the core       {dropped: n}      so many messages found no room under the rate
 *
 * Commands   create {url, sourceCode, config} · delete {url} · execute {url, method, params}
 *
 * This file and what it imports are joined to one script for places that can import nothing: their
 * top-level names must differ.
 */

import { limited } from "../clock.js";
import { MiniBus } from "../minibus.js";
import { answerTo, errorBody, isAnswerable } from "../messages.js";
import { roughSize } from "./limits.js";
import { startedStub } from "./module-forms.js";

export const INTERNAL = "hyperty-runtime://sandbox/internal";
export const EXTERNAL = "hyperty-runtime://sandbox/external";
const DISCONNECT_TIME = 3000; // ms that disconnect() of a component may take
const MAX_PENDING = 4; // seconds that a message waits for its turn under the rate

/**
 * @param send takes a frame for the core
 * @param load resolves the text of a component with its exports (module-forms.js)
 * @param limits {rate, rateBytes}: messages and characters a second that components may post, together;
 *   the rest waits
 * @returns receive(frame), for what the core sends
 */
export function openInside(send, load, limits = {}) {
  const components = new Map(); // url -> {bus, instance}
  const post = limitedSend(send, limits);

  /** Post what a component says; what finds no room is answered. */
  function postOf(url, message) {
    if (post({ url, message }) || !isAnswerable(message)) return;
    components
      .get(url)
      ?.bus.receive(answerTo(message, errorBody(429, "This sandbox posts more than it may.")));
  }

  async function create({ url, sourceCode, config }) {
    if (components.has(url)) return errorBody(500, `Instance ${url} already exist!`);
    const component = { bus: new MiniBus((message) => postOf(url, message)), instance: null };
    components.set(url, component);
    try {
      const instance = await startedStub(
        await load(sourceCode, config),
        url,
        component.bus,
        config,
      );
      component.instance = instance;
      if (components.get(url) === component) return { code: 200 };
      await disconnect(instance); // it was ended while it started
      return errorBody(503, "The component was ended while it started.");
    } catch (error) {
      if (components.get(url) === component) components.delete(url);
      component.bus.close();
      return errorBody(502, `The component cannot be started: ${error?.message ?? error}`);
    }
  }

  async function remove({ url }) {
    const component = components.get(url);
    if (!component) return errorBody(500, `Instance ${url} does not exist!`);
    components.delete(url);
    await disconnect(component.instance);
    await Promise.resolve(); // what it said last is on its way
    component.bus.close();
    return { code: 200 };
  }

  async function disconnect(instance) {
    if (typeof instance?.disconnect !== "function") return;
    const ended = Promise.resolve().then(() => instance.disconnect());
    await limited(ended, DISCONNECT_TIME, () => new Error("no answer")).catch(() => {});
  }

  function execute({ url, method, params = [] }) {
    const instance = components.get(url)?.instance;
    if (typeof instance?.[method] !== "function")
      return errorBody(500, `Instance ${url} has no ${method}.`);
    Promise.resolve()
      .then(() => instance[method](...params))
      .catch((error) => components.get(url)?.bus.report("component.failed", { error }));
    return { code: 200 };
  }

  const commands = { create, delete: remove, execute };

  async function command(message) {
    const perform = commands[message.type];
    const body = perform
      ? await perform(message.body ?? {})
      : errorBody(400, `There is no command ${message.type}.`);
    send({ message: answerTo(message, body) });
  }

  return ({ url, message, ping }) => {
    if (ping !== undefined) send({ pong: ping });
    else if (url !== undefined) components.get(url)?.bus.receive(message);
    else if (message?.to === INTERNAL) command(message);
  };
}

/** Sends up to `rate` frames and `rateBytes` characters a second, in order; false for what finds no room. */
function limitedSend(send, { rate = Infinity, rateBytes = Infinity }) {
  if (!Number.isFinite(rate)) return (frame) => (send(frame), true);
  const pending = []; // [frame, cost]
  let waiting = 0; // cost of what is pending
  let tokens = rate;
  let since = Date.now();
  let timer = null;
  let dropped = 0;
  const drain = () => {
    timer = null;
    const now = Date.now();
    tokens = Math.min(rate, tokens + (Math.max(0, now - since) * rate) / 1000);
    since = now;
    let sent = 0;
    while (sent < pending.length && tokens >= 1) {
      const [frame, cost] = pending[sent];
      send(frame);
      tokens -= cost;
      waiting -= cost;
      sent += 1;
    }
    pending.splice(0, sent);
    if (pending.length) timer = setTimeout(drain, 20);
    else if (dropped) {
      send({ dropped });
      dropped = 0;
    }
  };
  return (frame) => {
    const cost = Math.max(1, (roughSize(frame.message) * rate) / rateBytes);
    timer ??= setTimeout(drain, pending.length ? 20 : 1000);
    if (!pending.length && tokens >= 1) {
      tokens -= cost;
      send(frame);
      return true;
    }
    if (waiting + cost <= rate * MAX_PENDING) {
      if (!pending.length) {
        clearTimeout(timer);
        timer = setTimeout(drain, 20);
      }
      pending.push([frame, cost]);
      waiting += cost;
      return true;
    }
    dropped += 1;
    return false;
  };
}
