/** Data objects as runtimes name them: schemes, parts, criteria. Pure. */

import { Refusal } from "./talk.js";

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
