/**
 * JSON Schema as far as the node's AsyncAPI document uses it: what is wrong in a value, and the fields
 * of a form for it. Pure.
 */

/** What is wrong, each with its path; empty if the value is as the schema wants it. */
export function faults(schema, value, path = "") {
  const at = path || "the message";
  if ("const" in schema && value !== schema.const)
    return [`${at} has to be ${JSON.stringify(schema.const)}`];
  if (schema.enum && !schema.enum.includes(value))
    return [`${at} has to be one of ${schema.enum.join(", ")}`];
  if (schema.type && ![schema.type].flat().some((type) => isOf(type, value)))
    return [`${at} has to be of type ${[schema.type].flat().join(" or ")}`];
  const found = [];
  for (const choice of [schema.oneOf, schema.anyOf]) {
    if (choice && !choice.some((each) => faults(each, value, path).length === 0))
      found.push(unlike(choice, value, path, at));
  }
  if (typeof value === "string") {
    if (value.length < (schema.minLength ?? 0)) found.push(`${at} must not be empty`);
    if (value.length > (schema.maxLength ?? Infinity))
      found.push(`${at} has more than ${schema.maxLength} characters`);
  } else if (typeof value === "number") {
    if (value < (schema.minimum ?? -Infinity))
      found.push(`${at} has to be at least ${schema.minimum}`);
    if (value > (schema.maximum ?? Infinity))
      found.push(`${at} has to be at most ${schema.maximum}`);
  } else if (Array.isArray(value)) {
    if (value.length < (schema.minItems ?? 0)) found.push(`${at} has too few entries`);
    if (value.length > (schema.maxItems ?? Infinity))
      found.push(`${at} has more than ${schema.maxItems} entries`);
    if (schema.items)
      value.forEach((each, index) =>
        found.push(...faults(schema.items, each, `${path}[${index}]`)),
      );
  } else if (isOf("object", value)) {
    for (const name of schema.required ?? [])
      if (!Object.hasOwn(value, name)) found.push(`${below(path, name)} is missing`);
    for (const [name, each] of Object.entries(schema.properties ?? {})) {
      if (Object.hasOwn(value, name)) found.push(...faults(each, value[name], below(path, name)));
    }
  }
  return found;
}

/**
 * The fields of a form for messages of a schema: those that are one value, or a list of texts.
 *
 * @returns [{path: [names], schema, kind: "fixed" | "choice" | "number" | "text" | "texts"}]
 */
export function fields(schema, path = []) {
  return Object.entries(schema.properties ?? {}).flatMap(([name, each]) => {
    const here = [...path, name];
    const kind = kindOf(each);
    if (kind) return [{ path: here, schema: each, kind }];
    return each.properties ? fields(each, here) : [];
  });
}

export function valueAt(value, path) {
  return path.reduce((inside, name) => (isOf("object", inside) ? inside[name] : undefined), value);
}

/** The value with another one in that place; `undefined` takes it out. */
export function withValue(value, [name, ...rest], put) {
  const whole = isOf("object", value) ? { ...value } : {};
  if (rest.length) whole[name] = withValue(whole[name], rest, put);
  else if (put === undefined) delete whole[name];
  else whole[name] = put;
  return whole;
}

function kindOf(schema) {
  if ("const" in schema) return "fixed";
  if (schema.enum) return "choice";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "string") return "text";
  const kinds = (schema.oneOf ?? []).map(({ type }) => type);
  if (kinds.includes("string") && kinds.includes("array")) return "texts";
  return kinds.includes("string") ? "text" : "";
}

function unlike(choice, value, path, at) {
  const near =
    choice.find((each) => each.type && isOf(each.type, value)) ??
    choice.find((each) => each.required);
  const [first] = near ? faults(near, value, path) : [];
  return first ?? `${at} is of none of the kinds it may be`;
}

function isOf(type, value) {
  if (type === "integer") return Number.isInteger(value);
  if (type === "array") return Array.isArray(value);
  if (type === "object")
    return value !== null && typeof value === "object" && !Array.isArray(value);
  return type === "null" ? value === null : typeof value === type;
}

function below(path, name) {
  return path ? `${path}.${name}` : name;
}
