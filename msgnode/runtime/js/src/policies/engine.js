/**
 * The policy engine: documents become functions, a function comes to a decision. Pure.
 *
 *   const engine = new PolicyEngine(document);        throws PolicyError with every fault
 *   engine.decide(facts) -> {effect, obligations, advice, deciding, errors}
 *
 * Rules
 * - A document is a list of policy sets; a set holds policies or sets, a policy holds rules. Sets are
 *   asked by priority, lower first; the first that comes to a decision has decided.
 * - What cannot be evaluated is indeterminate and carries its side: what it might have been (D, P, DP).
 * - Obligations come only from what decided, innermost first.
 */

import { CannotTell } from "./facts.js";
import { ConditionReader, allOf } from "./conditions.js";
import { DUE, EFFECTS, OBLIGATIONS, RATE, algorithmOf, kindOf } from "./vocabulary.js";
import { rewritablePath } from "./rewriting.js";

const SIDES = { permit: "P", deny: "D" };
const MAX_SETS = 50;
const NOTHING = Object.freeze({
  effect: "notApplicable",
  side: "",
  deciding: [],
  obligations: [],
  advice: [],
  errors: [],
});
const SHARED = ["id", "target", "priority", "obligations", "advice", "description"];
const KEYS = {
  rule: [...SHARED, "condition", "effect"],
  policy: [...SHARED, "rules", "ruleCombiningAlgorithm"],
  "policy set": [...SHARED, "policies", "policyCombiningAlgorithm", "version", "update", "mode"],
};

/** A document that is not in the language; `problems` names every fault. */
export class PolicyError extends Error {
  constructor(problems) {
    super(problems.join("; "));
    this.name = "PolicyError";
    this.problems = problems;
  }
}

export class PolicyEngine {
  #evaluate;

  /** @param document a list of policy sets, or one; @param options {lists, forced} as for ConditionReader */
  constructor(document, options = {}) {
    const reader = new DocumentReader(new ConditionReader(options));
    const sets = (Array.isArray(document) ? document : [document]).map((set, at) =>
      reader.set(set, `$[${at}]`, `set-${at + 1}`, [], 1),
    );
    if (reader.conditions.problems.length) throw new PolicyError(reader.conditions.problems);
    this.attributes = reader.conditions.attributes;
    this.isEmpty = sets.length === 0;
    this.#evaluate = group("firstApplicable", sets, []);
  }

  decide(facts) {
    return this.#evaluate(facts);
  }
}

class DocumentReader {
  constructor(conditions) {
    this.conditions = conditions;
  }

  set(raw, path, name, above, depth) {
    const given = this.#map(depth > MAX_SETS ? null : raw, path, "policy set");
    const members = this.#list(given, "policies", path);
    const read = (item, at, child, here) =>
      item && typeof item === "object" && "policies" in item
        ? this.set(item, at, child, here, depth + 1)
        : this.#policy(item, at, child, here);
    return this.#layer(
      given,
      path,
      name,
      above,
      "policyCombiningAlgorithm",
      "policies",
      members,
      read,
    );
  }

  #policy(raw, path, name, above) {
    const given = this.#map(raw, path, "policy");
    const members = this.#list(given, "rules", path);
    return this.#layer(
      given,
      path,
      name,
      above,
      "ruleCombiningAlgorithm",
      "rules",
      members,
      (...all) => this.#rule(...all),
    );
  }

  #rule(raw, path, name, above) {
    const given = this.#map(raw, path, "rule");
    const { effect } = given;
    if (!EFFECTS.includes(effect))
      this.conditions.report(
        `${path}.effect`,
        `expected permit or deny, found ${JSON.stringify(effect)}`,
      );
    const id = this.#id(given, path, name);
    const deciding = [...above, id];
    const holds = allOf([
      this.conditions.read(given.target, `${path}.target`),
      this.conditions.read(given.condition, `${path}.condition`),
    ]);
    const obligations = this.#ofRule(given, "obligations", path, id, effect);
    const advice = this.#ofRule(given, "advice", path, id, effect);
    const outcome = Object.freeze({ effect, side: "", deciding, obligations, advice, errors: [] });
    const evaluate = (facts) => {
      try {
        return holds(facts) ? outcome : NOTHING;
      } catch (error) {
        return untold(error, deciding, SIDES[effect]);
      }
    };
    return {
      id,
      evaluate,
      effects: [effect],
      priority: this.#priority(given, path),
      hasDuties: obligations.length + advice.length > 0,
    };
  }

  #layer(given, path, name, above, algorithmKey, membersKey, members, read) {
    const id = this.#id(given, path, name);
    const deciding = [...above, id];
    const children = members.map((item, at) =>
      read(item, `${path}.${membersKey}[${at}]`, `${id}/${at + 1}`, deciding),
    );
    const ids = children.map((child) => child.id);
    const twice = ids.find((each, at) => ids.indexOf(each) !== at);
    if (twice !== undefined)
      this.conditions.report(
        `${path}.${membersKey}`,
        `the id ${JSON.stringify(twice)} stands twice among siblings`,
      );
    const algorithm =
      given[algorithmKey] === undefined ? "blockOverrides" : algorithmOf(given[algorithmKey]);
    if (!algorithm)
      this.conditions.report(
        `${path}.${algorithmKey}`,
        `there is no algorithm ${JSON.stringify(given[algorithmKey])}`,
      );
    let evaluate = group(algorithm ?? "blockOverrides", children, deciding);
    const obligations = this.#byDecision(given, "obligations", path, id);
    const advice = this.#byDecision(given, "advice", path, id);
    const hasOwn = Object.keys(obligations).length + Object.keys(advice).length > 0;
    if (hasOwn) evaluate = withDuties(evaluate, obligations, advice);
    if (given.target !== undefined)
      evaluate = underTarget(
        this.conditions.read(given.target, `${path}.target`),
        evaluate,
        deciding,
      );
    const closed = { denyUnlessPermit: "deny", permitUnlessDeny: "permit" }[algorithm];
    const effects = [
      ...new Set([...children.flatMap((child) => child.effects), ...(closed ? [closed] : [])]),
    ];
    return {
      id,
      evaluate,
      effects,
      priority: this.#priority(given, path),
      hasDuties: hasOwn || children.some((child) => child.hasDuties),
    };
  }

  #map(raw, path, what) {
    if (typeof raw !== "object" || raw === null || Array.isArray(raw)) {
      this.conditions.report(path, `expected a ${what}, which is a map`);
      return {};
    }
    for (const key of Object.keys(raw)) {
      if (!KEYS[what].includes(key))
        this.conditions.report(
          `${path}.${key}`,
          `a ${what} has no such key; one of ${KEYS[what].join(", ")}`,
        );
    }
    return raw;
  }

  #list(given, key, path) {
    const value = given[key] ?? [];
    if (Array.isArray(value)) return value;
    this.conditions.report(`${path}.${key}`, "expected a list");
    return [];
  }

  #id({ id }, path, name) {
    if (id === undefined) return name;
    if ((typeof id !== "string" && !Number.isInteger(id)) || id === "" || String(id).length > 100) {
      this.conditions.report(
        `${path}.id`,
        "expected a text of at most 100 characters, or a number",
      );
      return name;
    }
    return String(id);
  }

  #priority({ priority = 0 }, path) {
    if (Number.isInteger(priority) && Math.abs(priority) < 2 ** 31) return priority;
    this.conditions.report(
      `${path}.priority`,
      "expected a whole number; the lower one comes first",
    );
    return 0;
  }

  #ofRule(given, key, path, source, effect) {
    const value = given[key];
    const keys =
      value && typeof value === "object" && !Array.isArray(value) ? Object.keys(value) : [];
    if (keys.length && keys.every((each) => DUE.includes(each)))
      return this.#byDecision(given, key, path, source)[effect] ?? [];
    return this.#duties(value, `${path}.${key}`, source, key);
  }

  #byDecision(given, key, path, source) {
    const duties = {};
    for (const item of [given[key]].flat()) {
      if (!item || !Object.keys(item).length) continue;
      if (typeof item !== "object" || !Object.keys(item).every((due) => DUE.includes(due))) {
        this.conditions.report(`${path}.${key}`, `expected a map by decision: ${DUE.join(", ")}`);
        continue;
      }
      for (const [due, tasks] of Object.entries(item)) {
        duties[due] = [
          ...(duties[due] ?? []),
          ...this.#duties(tasks, `${path}.${key}.${due}`, source, key),
        ];
      }
    }
    return duties;
  }

  #duties(raw, path, source, key) {
    const duties = [];
    for (const item of [raw].flat()) {
      if (item === undefined || item === null) continue;
      if (typeof item !== "object") {
        this.conditions.report(
          path,
          "expected a map of names and parameters, or a list of such maps",
        );
        continue;
      }
      for (const [name, value] of Object.entries(item)) {
        if (key === "obligations") this.#checkDuty(name, value, `${path}.${name}`);
        duties.push({ name, value, source });
      }
    }
    return duties;
  }

  /** An obligation nobody can carry out would stop what it stands with, in silence. */
  #checkDuty(name, value, path) {
    const report = (text) => this.conditions.report(path, text);
    const isCount = (limit) => Number.isInteger(limit) && limit >= 0;
    const isMap =
      typeof value === "object" &&
      value !== null &&
      !Array.isArray(value) &&
      Object.keys(value).length > 0;
    if (!OBLIGATIONS.includes(name))
      report(`there is no obligation ${JSON.stringify(name)}; one of ${OBLIGATIONS.join(", ")}`);
    else if (["limitByNumberOfEntries", "limitByConditionOfEntries", "rateLimit"].includes(name)) {
      if (!isMap) report("expected a map {attribute: limit}");
      else {
        for (const [attribute, limit] of Object.entries(value)) {
          if (name === "rateLimit") {
            if (!RATE.test(attribute) || !kindOf(attribute) || !isCount(limit))
              report(`expected {"rate.<key>.<window>": number}, found ${attribute}`);
          } else if (!rewritablePath(attribute)) report(`${attribute} cannot be rewritten`);
          else if (name === "limitByNumberOfEntries" && !isCount(limit))
            report(`${attribute}: expected a number of entries`);
        }
      }
    } else if (name === "emailto") {
      if (![value].flat().every((mail) => typeof mail === "string" && mail.includes("@")))
        report("expected an e-mail address or a list of them");
    } else if (typeof value !== "string") report("expected a text");
  }
}

// --- combining ------------------------------------------------------------------------------------------

function group(algorithm, children, deciding) {
  if (algorithm === "firstApplicable") {
    const ordered = [...children].sort((one, other) => one.priority - other.priority);
    return (facts) => firstApplicable(ordered, facts);
  }
  const winner = ["blockOverrides", "permitUnlessDeny"].includes(algorithm) ? "deny" : "permit";
  const loser = winner === "deny" ? "permit" : "deny";
  const possible = children.filter((child) => child.effects.includes(winner));
  const ordered = [...possible, ...children.filter((child) => !child.effects.includes(winner))];
  const hasDuties = children.some((child) => child.hasDuties);
  const overrides = (facts) => combined(ordered, possible.length, hasDuties, winner, facts);
  if (["blockOverrides", "allowOverrides"].includes(algorithm)) return overrides;
  return (facts) => {
    const outcome = overrides(facts);
    return EFFECTS.includes(outcome.effect)
      ? outcome
      : { ...NOTHING, effect: loser, deciding, errors: outcome.errors };
  };
}

function firstApplicable(children, facts) {
  const silent = [];
  for (const { evaluate } of children) {
    const outcome = evaluate(facts);
    if (outcome.effect !== "notApplicable") return outcome;
    if (outcome !== NOTHING) silent.push(outcome);
  }
  return silent.length ? merged(silent) : NOTHING;
}

function combined(children, losers, hasDuties, winner, facts) {
  const found = { won: [], lost: [], silent: [], unclear: [] };
  for (let at = 0; at < children.length; at += 1) {
    if (found.lost.length && at >= losers && !hasDuties) break;
    const outcome = children[at].evaluate(facts);
    if (outcome === NOTHING) continue;
    if (outcome.effect === winner) {
      if (!hasDuties) return outcome;
      found.won.push(outcome);
    } else if (outcome.effect === "indeterminate") found.unclear.push(outcome);
    else if (outcome.effect === "notApplicable") found.silent.push(outcome);
    else found.lost.push(outcome);
  }
  if (found.won.length) return merged(found.won);
  if (found.unclear.length) return unclear(found.unclear, found.lost, SIDES[winner]);
  if (found.lost.length) return merged(found.lost);
  return found.silent.length ? merged(found.silent) : NOTHING;
}

/** The outcome where nobody won and somebody could not be evaluated. */
function unclear(unclears, lost, mine) {
  const sides = new Set(unclears.map((outcome) => outcome.side));
  const errors = unclears.flatMap((outcome) => outcome.errors);
  const other = mine === "P" ? "D" : "P";
  const onlyLosers = [...sides].every((side) => side === other);
  if (onlyLosers && lost.length) return { ...merged(lost), errors };
  const side = onlyLosers
    ? unclears[0].side
    : sides.size === 1 && sides.has(mine) && !lost.length
      ? mine
      : "DP";
  return { ...unclears[0], side, errors };
}

/** The first of equal decisions, with the duties of all. */
function merged(outcomes) {
  if (outcomes.length === 1) return outcomes[0];
  const all = (key) => outcomes.flatMap((outcome) => outcome[key]);
  return {
    ...outcomes[0],
    obligations: all("obligations"),
    advice: all("advice"),
    errors: all("errors"),
  };
}

function withDuties(evaluate, obligations, advice) {
  return (facts) => {
    const outcome = evaluate(facts);
    const [due, advised] = [obligations[outcome.effect] ?? [], advice[outcome.effect] ?? []];
    if (!due.length && !advised.length) return outcome;
    return {
      ...outcome,
      obligations: [...outcome.obligations, ...due],
      advice: [...outcome.advice, ...advised],
    };
  };
}

function underTarget(applies, evaluate, deciding) {
  return (facts) => {
    try {
      if (!applies(facts)) return NOTHING;
    } catch (error) {
      const wouldBe = evaluate(facts);
      if (wouldBe.effect === "notApplicable") return NOTHING;
      return untold(error, deciding, wouldBe.side || SIDES[wouldBe.effect]);
    }
    return evaluate(facts);
  };
}

function untold(error, deciding, side) {
  if (!(error instanceof CannotTell)) throw error;
  return {
    effect: "indeterminate",
    side,
    deciding,
    obligations: [],
    advice: [],
    errors: [`${deciding.join("/")}: ${error.message}`],
  };
}
