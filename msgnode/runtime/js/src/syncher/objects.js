/** What all parts of data objects need: how they are named, events for the application, answers in parts. */

import { bytesOf, codeOf } from "../messages.js";
import { Refusal } from "./talk.js";

const MAX_WHOLE = 16 * 1024 * 1024; // bytes of an answer in parts: more than an object and its children have
const SCHEMES = {
  connection: "connection",
  communication: "comm",
  context: "context",
  walletdata: "walletData",
  helloworld: "hello",
};

/** What an observer subscribes. */
export function partsOf(object) {
  return [`${object}/changes`, `${object}/children/`];
}

/**
 * The scheme of an object's address: the one that was asked for, else that of its schema.
 *
 * @throws Refusal if what was asked for is none
 */
export function schemeFor(scheme, schema) {
  if (scheme === undefined)
    return SCHEMES[String(schema).split("/").pop().toLowerCase()] ?? "resource";
  if (typeof scheme === "string" && /^[a-z][a-z0-9+.-]{0,49}$/i.test(scheme)) return scheme;
  throw new Refusal(400, `${String(scheme).slice(0, 60)} is no scheme of an address.`);
}

/** Whether an object is one that `resume` asks for. */
export function isMeant({ resource, schema, name }, object, stored) {
  const names = [resource, object, schema, stored.schema, name, stored.value?.name];
  return [0, 2, 4].every((at) => names[at] === undefined || names[at] === names[at + 1]);
}

/** The application's listeners of one kind of event. One that throws is reported and stops nobody. */
export class Listeners {
  #bus;
  #all = new Set();

  constructor(bus) {
    this.#bus = bus;
  }

  add(listener) {
    this.#all.add(listener);
    return { remove: () => this.#all.delete(listener) };
  }

  tell(event) {
    for (const listener of [...this.#all])
      if (this.#all.has(listener)) this.#bus.call(listener, event);
  }
}

/**
 * Post a request whose answer may come in parts: one of code below 200 whose value has `responses: n`, and
 * n - 1 more with parts of the children, 16 MiB together at most. Resolves with the body of the whole, rejects with a
 * Refusal.
 */
export function requestInParts(bus, message) {
  return new Promise((resolve, reject) => {
    let whole = null;
    let left = 0;
    let size = 0;
    let id;
    const finish = () => {
      if (codeOf(whole) < 200) bus.removeResponseListener(message.from, id);
      resolve({ ...whole, code: 200 });
    };
    id = bus.postMessage(message, ({ body }) => {
      const { value } = body;
      if (body.code >= 300)
        reject(
          new Refusal(
            body.code,
            body.desc ?? body.description ?? `${message.to} answered ${body.code}.`,
          ),
        );
      else if (whole && (size += bytesOf(body)) > MAX_WHOLE) {
        bus.removeResponseListener(message.from, id);
        reject(new Refusal(413, `${message.to} answers with more than ${MAX_WHOLE} bytes.`));
      } else if (whole) {
        Object.assign((whole.value.childrenObjects ??= {}), value?.childrenObjects);
        left -= 1;
        whole.code = body.code;
        if (left === 0) finish();
        else if (body.code >= 200)
          reject(new Refusal(502, `${message.to} has left out ${left} parts of its answer.`));
      } else if (Number.isInteger(value?.responses) && value.responses > 1) {
        whole = body;
        left = value.responses - 1;
        if (body.code >= 200)
          reject(new Refusal(502, `${message.to} has left out ${left} parts of its answer.`));
      } else if (body.code >= 200) resolve(body);
    });
  });
}
