/**
 * A small runtime: a bus, and the way to get a protostub from a domain's catalogue onto it.
 *
 * Bus: postMessage() hands a message to who waits for its answer, else to the listeners of its
 * `to`, else to `*`, where a protostub takes it to its node. What a protostub brought in (it has
 * `via`) never goes to `*`, so nothing goes round.
 */

const ANSWER_TIME = 15_000; // ms, as the field's runtimes wait

export class MiniBus {
  #listeners = new Map();
  #waiting = new Map();
  #ids = 0;

  /** Call `listener` with every message to `address`. */
  addListener(address, listener) {
    if (!this.#listeners.has(address)) this.#listeners.set(address, new Set());
    const all = this.#listeners.get(address).add(listener);
    return { remove: () => all.delete(listener) };
  }

  /** Deliver a message; `onAnswer` gets the answers to it, provisional ones too. Returns its id. */
  postMessage(message, onAnswer) {
    const id = message.id || (onAnswer ? ++this.#ids : undefined);
    if (id !== undefined) message = { ...message, id };
    if (onAnswer) this.#waiting.set(`${message.from}#${id}`, onAnswer);
    if (message.type === "response" && this.#answer(message)) return id;
    const own = this.#listeners.get(message.to);
    const others = message.body?.via ? [] : (this.#listeners.get("*") ?? []);
    for (const listener of [...(own?.size ? own : others)]) listener(message);
    return id;
  }

  /** Send a request; resolves with the body of its final answer, rejects with an Error. */
  request(message) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`No answer from ${message.to}.`)), ANSWER_TIME);
      this.postMessage(message, ({ body = {} }) => {
        if (body.code < 200) return;
        clearTimeout(timer);
        if (body.code < 300) resolve(body);
        else reject(new Error(body.desc ?? body.description ?? `Answer ${body.code}.`));
      });
    });
  }

  #answer(message) {
    const key = `${message.to}#${message.id}`;
    const onAnswer = this.#waiting.get(key);
    if (!onAnswer) return false;
    if (!(message.body?.code < 200)) this.#waiting.delete(key);
    onAnswer(message);
    return true;
  }
}

/**
 * Protocol on the fly: look a protostub up in a catalogue, load its script, put it on the bus.
 * `config` overrides the descriptor's configuration. Resolves with the stub and its URL.
 */
export async function deploy(entry, stubURL, bus, config) {
  const answer = await fetch(entry, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`The catalogue answers ${answer.status}.`);
  const descriptor = await answer.json();
  const { activate } = await import(`${entry}.ps.js`);
  return activate(stubURL, bus, { ...descriptor.configuration, ...config }).instance;
}

/** A random id. crypto.randomUUID() is missing where a page is not served over TLS. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
