/**
 * Conditions: from JSON to functions of the facts, with the path of every fault. Pure.
 *
 *   {} or []              always                 [condition, …]   at least one
 *   {member, …}           all of its members     member           allOf | anyOf | not : condition(s)
 *                                                                 attribute : expression(s)
 *   expression            {operator: parameter, …}, or allOf | anyOf | not over expressions
 *
 * Rules
 * - A truth has three values: a test that cannot be evaluated raises CannotTell. `All` is false as soon as
 *   one member is, `any` true as soon as one is; otherwise the trouble of a member is that of the whole.
 *   Order never matters.
 * - A list of parameters means one of them; "<name>" is the value of another attribute.
 * - What the field published is read as what it means: `and`, `or`, lists that begin with `and`, `or` or
 *   `not`, and types of messages under `msgType`.
 */

import { CannotTell, boundOf, placeOf, textOf } from "./facts.js";
import {
  CLOSED_WORLDS,
  KEYWORDS,
  OPERATORS,
  PLAIN,
  SYNONYMS,
  kindOf,
  nameOf,
} from "./vocabulary.js";

const MAX_DEPTH = 400;
const FIELD_KEYWORDS = { and: "allOf", or: "anyOf", not: "not" };
const TYPES = [
  "create",
  "read",
  "update",
  "delete",
  "subscribe",
  "unsubscribe",
  "response",
  "forward",
  "execute",
  "open",
  "re-open",
  "close",
  "handshake",
];
const ALWAYS = () => true;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isEmpty = (value) =>
  Array.isArray(value) ? value.length === 0 : isObject(value) && Object.keys(value).length === 0;

export class ConditionReader {
  problems = [];
  attributes = new Set(); // all that the conditions may ask for

  /** @param options {lists: named lists, forced: let unknown attributes in, as tests that cannot be told} */
  constructor({ lists = {}, forced = false } = {}) {
    this.lists = lists;
    this.forced = forced;
  }

  report(path, text) {
    this.problems.push(`${path}: ${text}`);
  }

  /** A whole condition or target as a function of the facts. */
  read(raw, path) {
    return raw === undefined || isEmpty(raw) ? ALWAYS : this.#condition(raw, path, 1);
  }

  /** The attribute that a key names: {name, kind}; undefined (and a fault, unless forced) if there is none. */
  attribute(key, path) {
    const words = key.split(" ").filter(Boolean);
    if (words.length > 1 && words[0] === "sumOf") {
      const terms = words.slice(1).map(nameOf);
      const unknown = terms.find((term) => !kindOf(term));
      if (unknown) return this.#unknown(unknown, path);
      terms.forEach((term) => this.attributes.add(term));
      return { name: `sumOf ${terms.join(" ")}`, kind: "number" };
    }
    const name = nameOf(key);
    const kind = kindOf(name);
    if (!kind) return this.#unknown(name, path);
    this.attributes.add(name);
    return { name, kind };
  }

  #unknown(name, path) {
    if (!this.forced) this.report(path, `there is no attribute ${JSON.stringify(name)}`);
    return undefined;
  }

  #condition(raw, path, depth) {
    raw = inWords(raw);
    if (
      !this.#isReadable(
        raw,
        path,
        depth,
        "expected a map of conditions (all) or a list of them (at least one)",
      )
    )
      return ALWAYS;
    if (Array.isArray(raw))
      return anyOf(raw.map((item, at) => this.#condition(item, `${path}[${at}]`, depth + 1)));
    const members = [];
    for (const [word, value] of Object.entries(raw)) {
      const here = `${path}.${word}`;
      const key = FIELD_KEYWORDS[word] ?? word;
      if (KEYWORDS.includes(key))
        members.push(
          joined(
            key,
            this.#group(key, value, here, (item, at) => this.#condition(item, at, depth + 1)),
          ),
        );
      else {
        const attribute = this.attribute(key, here);
        if (attribute) members.push(this.#expression(attribute, value, here, depth + 1));
        else if (this.forced) members.push(broken(`${here}: there is no attribute ${key}`));
      }
    }
    return allOf(members);
  }

  #expression(attribute, raw, path, depth) {
    raw = inWords(raw);
    if (
      !this.#isReadable(
        raw,
        path,
        depth,
        `expected an operator with its parameter; one of ${OPERATORS.join(", ")}`,
      )
    )
      return ALWAYS;
    if (Array.isArray(raw))
      return anyOf(
        raw.map((item, at) => this.#expression(attribute, item, `${path}[${at}]`, depth + 1)),
      );
    const members = [];
    for (const [word, value] of Object.entries(raw)) {
      const here = `${path}.${word}`;
      const key = FIELD_KEYWORDS[word] ?? word;
      if (OPERATORS.includes(key)) members.push(this.#test(attribute, key, value, here));
      else if (KEYWORDS.includes(key))
        members.push(
          joined(
            key,
            this.#group(key, value, here, (item, at) =>
              this.#expression(attribute, item, at, depth + 1),
            ),
          ),
        );
      else
        this.report(
          here,
          `there is no operator ${JSON.stringify(key)}; one of ${OPERATORS.join(", ")}`,
        );
    }
    return allOf(members);
  }

  #isReadable(raw, path, depth, expected) {
    const text =
      depth > MAX_DEPTH
        ? `nested deeper than ${MAX_DEPTH} layers`
        : !isObject(raw) && !Array.isArray(raw)
          ? expected
          : isEmpty(raw)
            ? "an empty condition can only stand alone; leave it out here"
            : "";
    if (text) this.report(path, text);
    return !text;
  }

  #group(key, value, path, read) {
    if (isEmpty(value)) {
      this.report(path, `${key} must not be empty`);
      return [];
    }
    return Array.isArray(value)
      ? value.map((item, at) => read(item, `${path}[${at}]`))
      : [read(value, path)];
  }

  #test(attribute, operator, raw, path) {
    if (operator === "exists") {
      if (typeof raw !== "boolean") this.report(path, "exists expects true or false");
      return (facts) => (facts.value(attribute.name) !== null) === raw;
    }
    const given = Array.isArray(raw) ? raw : [raw];
    const types =
      attribute.name === "msgType" && ["equals", "in"].includes(operator)
        ? given.filter(isType)
        : [];
    if (types.length) {
      const ofType = this.#test({ name: "actionType", kind: "folded" }, operator, types, path);
      const items = given.filter((item) => !isType(item));
      return items.length ? anyOf([ofType, this.#test(attribute, operator, items, path)]) : ofType;
    }
    if (!given.length) this.report(path, "a list of parameters must not be empty");
    const values = [];
    const others = [];
    given.forEach((item, at) => {
      const here = Array.isArray(raw) ? `${path}[${at}]` : path;
      const reference = typeof item === "string" && /^<([^<>]+)>$/.exec(item);
      if (item === "*" && operator === "equals")
        others.push((facts) => facts.value(attribute.name) !== null);
      else if (reference) this.#reference(attribute, operator, reference[1], here, others);
      else if (operator === "in" && typeof item === "string" && item.startsWith("@")) {
        const list = Object.hasOwn(this.lists, item.slice(1)) ? this.lists[item.slice(1)] : null;
        if (!list) this.report(here, `there is no list named ${JSON.stringify(item.slice(1))}`);
        values.push(...(list ?? []).map((text) => folded(attribute.kind, text)));
      } else this.#parameter(attribute, operator, item, here, values);
    });
    const world = CLOSED_WORLDS[attribute.name];
    if (world && !this.forced && ["equals", "in"].includes(operator)) {
      for (const text of values)
        if (!world.includes(text))
          this.report(
            path,
            `${attribute.name} is never ${JSON.stringify(text)}; one of ${world.join(", ")}`,
          );
    }
    if (values.length || !others.length) others.unshift(compared(attribute, operator, values));
    return anyOf(others);
  }

  #reference(attribute, operator, key, path, others) {
    if (["like", "between"].includes(operator)) {
      this.report(path, `${operator} takes no reference to another attribute`);
      return;
    }
    const other = this.attribute(key, path);
    if (other) others.push(referring(attribute, operator, other));
    else if (this.forced) others.push(broken(`${path}: there is no attribute ${key}`));
  }

  #parameter({ name, kind }, operator, item, path, values) {
    if (["equals", "in"].includes(operator)) {
      if (item === null || typeof item === "object")
        return this.report(path, "expected a text, a number or true/false");
      let text = folded(kind, textOf(item));
      if (["time", "date"].includes(kind)) {
        const place = placeOf(kind, text);
        if (place === null)
          return this.report(path, `expected a ${kind}, found ${JSON.stringify(text)}`);
        if (kind === "time") text = clock(place);
      }
      return values.push(SYNONYMS[name]?.[text] ?? text);
    }
    if (operator === "contains") {
      if (item === null || typeof item === "object")
        return this.report(path, "expected a text, a number or true/false");
      return values.push(folded(kind, textOf(item)));
    }
    if (operator === "like") {
      if (typeof item !== "string")
        return this.report(path, "like expects a text, in which * stands for anything");
      return values.push(pieces(folded(kind, item)));
    }
    if (operator === "between") {
      const bounds =
        typeof item === "string"
          ? item
              .split(/\s+/)
              .filter(Boolean)
              .map((part) => boundOf(kind, part))
          : [];
      if (bounds.length !== 2 || bounds.includes(null))
        return this.report(
          path,
          `between expects a text of two bounds; found ${JSON.stringify(item)}`,
        );
      if (bounds[0] > bounds[1] && !["time", "weekday"].includes(kind))
        return this.report(path, "the lower bound comes first");
      return values.push(bounds);
    }
    const bound = boundOf(kind, item);
    if (bound === null)
      return this.report(
        path,
        `expected a number, time, date or day as ${name} has it; found ${JSON.stringify(item)}`,
      );
    return values.push(bound);
  }
}

// --- truths -----------------------------------------------------------------------------------------

export function allOf(parts) {
  if (parts.length === 1) return parts[0];
  return (facts) => settled(parts, facts, false);
}

function anyOf(parts) {
  if (parts.length === 1) return parts[0];
  return (facts) => settled(parts, facts, true);
}

/** Whether a part is `wanted`, which settles the matter; trouble counts only if none is. */
function settled(parts, facts, wanted) {
  let trouble = null;
  for (const part of parts) {
    try {
      if (part(facts) === wanted) return wanted;
    } catch (error) {
      if (!(error instanceof CannotTell)) throw error;
      trouble = error;
    }
  }
  if (trouble) throw trouble;
  return !wanted;
}

const isType = (item) => typeof item === "string" && TYPES.includes(item.toLowerCase());

/** A list that begins with a word of logic as a map. */
function inWords(raw) {
  if (!Array.isArray(raw) || typeof raw[0] !== "string" || !Object.hasOwn(FIELD_KEYWORDS, raw[0]))
    return raw;
  return { [raw[0]]: raw.slice(1) };
}

function joined(key, group) {
  if (key === "allOf") return allOf(group);
  const some = anyOf(group);
  return key === "not" ? (facts) => !some(facts) : some;
}

function broken(why) {
  return () => {
    throw new CannotTell(why);
  };
}

function compared({ name, kind }, operator, values) {
  if (operator === "moreThan") return (facts) => facts.number(name) > Math.min(...values);
  if (operator === "lessThan") return (facts) => facts.number(name) < Math.max(...values);
  if (operator === "between") {
    const inside =
      (value) =>
      ([low, high]) =>
        low <= high ? low <= value && value <= high : value >= low || value <= high;
    return (facts) => values.some(inside(facts.number(name)));
  }
  if (operator === "contains") {
    return (facts) => {
      const texts = facts.texts(name);
      if (!texts) return false;
      const isText = PLAIN.has(kind) || !Array.isArray(facts.value(name));
      return values.some((part) =>
        isText ? texts.some((text) => text.includes(part)) : texts.includes(part),
      );
    };
  }
  if (operator === "like")
    return (facts) =>
      (facts.texts(name) ?? []).some((text) => values.some((pattern) => matches(text, pattern)));
  return (facts) => (facts.texts(name) ?? []).some((text) => values.includes(text));
}

function referring({ name, kind }, operator, other) {
  if (operator === "moreThan") return (facts) => facts.number(name) > facts.number(other.name);
  if (operator === "lessThan") return (facts) => facts.number(name) < facts.number(other.name);
  const isFolded = [kind, other.kind].includes("folded");
  const texts = (facts, of) =>
    (facts.texts(of) ?? []).map((text) => (isFolded ? text.toLowerCase() : text));
  return (facts) => {
    const [mine, theirs] = [texts(facts, name), texts(facts, other.name)];
    if (operator === "contains" && typeof facts.value(name) === "string")
      return theirs.some((part) => mine[0].includes(part));
    return mine.some((text) => theirs.includes(text));
  };
}

function folded(kind, text) {
  return ["folded", "weekday"].includes(kind) ? text.toLowerCase() : text;
}

function clock(seconds) {
  return [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60]
    .map((part) => String(part).padStart(2, "0"))
    .join(":");
}

/** The pieces of a pattern between its stars; \* is a literal star. */
function pieces(pattern) {
  return pattern
    .replaceAll("\\*", "\0")
    .split("*")
    .map((piece) => piece.replaceAll("\0", "*"));
}

/** Whether a text matches, anchored at both ends, in linear time. */
function matches(text, [head, ...rest]) {
  if (!rest.length) return text === head;
  const tail = rest.pop();
  if (text.length < head.length + tail.length || !text.startsWith(head) || !text.endsWith(tail))
    return false;
  let at = head.length;
  const end = text.length - tail.length;
  for (const piece of rest) {
    at = text.indexOf(piece, at);
    if (at < 0 || at + piece.length > end) return false;
    at += piece.length;
  }
  return true;
}
