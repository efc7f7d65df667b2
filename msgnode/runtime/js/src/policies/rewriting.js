/**
 * What the two limit obligations do to the body of a message. Pure.
 *
 * The body given is not changed. What is not there, or no list, is left alone; an entry whose fields
 * cannot be judged is not kept.
 */

import { CannotTell, numberOf, textsOf } from "./facts.js";
import { ConditionReader } from "./conditions.js";
import { nameOf } from "./vocabulary.js";

const PATHS = {
  valueAllocated: ["value", "allocated"],
  valueResources: ["value", "resources"],
  bodyValue: ["value"],
  resource: ["resource"],
};

/** Where an attribute stands in the body; undefined if it cannot be rewritten. */
export function rewritablePath(attribute) {
  const name = nameOf(attribute);
  if (name.startsWith("body.")) return name.split(".").slice(1);
  return Object.hasOwn(PATHS, name) ? PATHS[name] : undefined;
}

/** The body after these obligations. */
export function rewritten(body, obligations) {
  let after = body;
  for (const { name, value } of obligations) {
    if (!["limitByNumberOfEntries", "limitByConditionOfEntries"].includes(name)) continue;
    for (const [attribute, limit] of Object.entries(value)) {
      const change =
        name === "limitByNumberOfEntries" ? (entries) => entries.slice(0, limit) : keeping(limit);
      after = withList(after, rewritablePath(attribute), change);
    }
  }
  return after;
}

function keeping(limit) {
  const holds = new EntryReader().read(limit, "$");
  return (entries) =>
    entries.filter((entry) => {
      try {
        return holds(new EntryFacts(entry));
      } catch (error) {
        if (error instanceof CannotTell) return false;
        throw error;
      }
    });
}

function withList(body, [key, ...below], change) {
  const value = body?.[key];
  if (below.length) {
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? { ...body, [key]: withList(value, below, change) } : body;
  }
  return Array.isArray(value) ? { ...body, [key]: change(value) } : body;
}

/** Reads conditions over the fields of a list's entry: any name is an attribute there. */
class EntryReader extends ConditionReader {
  attribute(key) {
    return { name: nameOf(key), kind: "any" };
  }
}

class EntryFacts {
  constructor(entry) {
    this.entry = typeof entry === "object" && entry !== null ? entry : {};
  }

  value(name) {
    return Object.hasOwn(this.entry, name) ? this.entry[name] : null;
  }

  texts(name) {
    return textsOf(this.value(name));
  }

  number(name) {
    return numberOf(this.value(name));
  }
}
