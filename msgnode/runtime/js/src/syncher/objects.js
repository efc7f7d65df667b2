/** Data objects as runtimes name them: schemes, parts, criteria. Pure. */

const SCHEMES = { connection: "connection", communication: "comm", context: "context", walletdata: "walletData", helloworld: "hello" };

/** What an observer subscribes. */
export function partsOf(object) {
  return [`${object}/changes`, `${object}/children/`];
}

/** The scheme that objects of a schema have. */
export function schemeOf(schema) {
  const name = schema.split("/").pop().toLowerCase();
  return SCHEMES[name] ?? "resource";
}

/** Whether an object is one that `resume` asks for. */
export function isMeant({ resource, schema, name }, object, stored) {
  const names = [resource, object, schema, stored.schema, name, stored.value?.name];
  return [0, 2, 4].every((at) => names[at] === undefined || names[at] === names[at + 1]);
}
