/**
 * Conditions as rows and groups, from their JSON and back. Pure.
 *
 *   node  = group | test
 *   group = {how: "all" | "any" | "none", members: [node]}
 *   test  = {attribute, operator, value}      value: the parameter as it stands in the JSON
 *
 * What is read and written again means the same. What rows cannot show is Unreadable, and stays JSON.
 * A test without a value is written with null, which the language refuses: a half-built test is never
 * saved as none.
 */

const GROUPS = { allOf: "all", anyOf: "any", not: "none" };

export class Unreadable extends Error {}

/** A condition, as a group. */
export function read(raw) {
  if (isEmpty(raw)) return group("all", []);
  const node = condition(raw);
  return node.members ? node : group("all", [node]);
}

/** The JSON of a group. */
export function write(node) {
  if (!node.members) return { [node.attribute]: { [node.operator]: node.value ?? null } };
  const members = node.members.filter((each) => !each.members || each.members.length).map(write);
  if (!members.length) return {};
  if (node.how === "all") return merged(members) ?? { allOf: members };
  if (node.how === "any") return members.length === 1 ? members[0] : { anyOf: members };
  return { not: members.length === 1 ? members[0] : members };
}

export function group(how, members) {
  return { how, members };
}

function condition(raw) {
  if (isEmpty(raw) || raw === null || typeof raw !== "object") throw new Unreadable();
  if (Array.isArray(raw)) {
    if (raw.some((each) => typeof each === "string")) throw new Unreadable();
    return one(raw.map(condition), "any");
  }
  return one(
    Object.entries(raw).map(([key, value]) =>
      Object.hasOwn(GROUPS, key)
        ? joined(key, listed(value).map(condition))
        : expression(key, value),
    ),
    "all",
  );
}

function expression(attribute, raw) {
  if (attribute === "and" || attribute === "or") throw new Unreadable();
  if (isEmpty(raw) || raw === null || typeof raw !== "object") throw new Unreadable();
  if (Array.isArray(raw)) {
    if (raw.some((each) => typeof each === "string")) throw new Unreadable();
    return one(
      raw.map((each) => expression(attribute, each)),
      "any",
    );
  }
  return one(
    Object.entries(raw).map(([key, value]) => {
      if (Object.hasOwn(GROUPS, key))
        return joined(
          key,
          listed(value).map((each) => expression(attribute, each)),
        );
      if (key === "and" || key === "or" || isMap(value)) throw new Unreadable();
      return { attribute, operator: key, value };
    }),
    "all",
  );
}

/** What stands under `allOf`, `anyOf` or `not`: `not` stays around a single member. */
function joined(key, members) {
  return key === "not" ? group("none", members) : one(members, GROUPS[key]);
}

function one(members, how) {
  return members.length === 1 ? members[0] : group(how, members);
}

/** Maps as one, if none says anything twice: a map means all of its members. */
function merged(maps) {
  const whole = {};
  for (const map of maps) {
    for (const [key, value] of Object.entries(map)) {
      if (!Object.hasOwn(whole, key)) {
        whole[key] = value;
        continue;
      }
      const isClear =
        !Object.hasOwn(GROUPS, key) &&
        Object.keys(value).every((operator) => !Object.hasOwn(whole[key], operator));
      if (!isClear) return null;
      whole[key] = { ...whole[key], ...value };
    }
  }
  return whole;
}

function listed(value) {
  if (!Array.isArray(value)) return [value];
  if (!value.length) throw new Unreadable();
  return value;
}

function isMap(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function isEmpty(raw) {
  return raw !== null && typeof raw === "object" && Object.keys(raw).length === 0;
}
