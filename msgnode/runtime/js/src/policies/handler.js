/**
 * Local policies on the bus: a handler of its pipelines that enforces what an engine decides.
 *
 *   bus.pipelineOut.use(policyHandler(engine));   bus.pipelineIn.use(policyHandler(engine));
 *
 * Rules
 * - A refused message is answered 403, whose text says on which side; the words of `inform` are added.
 *   A permit beyond its `rateLimit` is refused with 429.
 * - `body.auth` of what passes is true if a policy permitted it, false if none applied.
 * - Who sends an outgoing message is whom the runtime knows; of an incoming one the identity is believed
 *   if the node has verified it (`body.assertedIdentity`).
 * - An obligation that cannot be carried out does not let the message through.
 */

import { Facts } from "./facts.js";
import { rewritten } from "./rewriting.js";
import { RATE, WINDOWS } from "./vocabulary.js";

const MAX_COUNTERS = 10_000;

/**
 * @param engine a PolicyEngine
 * @param options {now: () => Date, node, lookUp(name, facts), speaker(message, context), log(obligation,
 *   message, effect): does `log` and `emailto`, deliverNotApplicable = true, deliverIndeterminate = false}
 */
export function policyHandler(engine, options = {}) {
  const {
    now = localNow,
    node = {},
    lookUp = () => null,
    speaker = believed,
    log = () => {},
  } = options;
  const { deliverNotApplicable = true, deliverIndeterminate = false } = options;
  const counts = new Counters();
  const counted = [...engine.attributes].filter((name) => RATE.test(name));

  return (message, context) => {
    if (engine.isEmpty) return message;
    const { direction } = context;
    const moment = now();
    const facts = new Facts(message, {
      direction,
      speaker: speaker(message, context),
      now: moment,
      node,
      lookUp: (name, asking) =>
        RATE.test(name) ? counts.of(name, asking, moment) : lookUp(name, asking),
    });
    for (const name of counted) counts.note(name, facts, moment);
    const { effect, obligations, advice } = engine.decide(facts);
    const passes = {
      permit: true,
      deny: false,
      notApplicable: deliverNotApplicable,
      indeterminate: deliverIndeterminate,
    }[effect];
    for (const each of [...obligations, ...advice])
      if (["log", "emailto"].includes(each.name)) log(each, message, effect);
    if (!passes) {
      const words = obligations.find(({ name }) => ["inform", "info"].includes(name))?.value;
      return { code: 403, desc: `Blocked by policy (${direction})${words ? `: ${words}` : "."}` };
    }
    if (obligations.some((each) => counts.exceeds(each, facts, moment)))
      return { code: 429, desc: `Too many messages (${direction}).` };
    const body = { ...rewritten(message.body ?? {}, obligations), auth: effect === "permit" };
    return { ...message, body };
  };
}

/** Whom the node, or nobody, vouches for. */
function believed({ body }, { direction }) {
  if (direction === "in" && body?.assertedIdentity !== true) return {};
  const { userProfile, idp } = body?.identity ?? {};
  const domain = typeof idp === "string" ? idp : idp?.domain;
  return {
    username: typeof userProfile?.username === "string" ? userProfile.username : "",
    issuer: typeof domain === "string" ? domain : "",
  };
}

/** The local time as UTC fields. */
function localNow() {
  const moment = new Date();
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000);
}

/** Messages by key and window; the oldest keys go first. */
class Counters {
  #counts = new Map(); // name and value -> {window, count}

  of(name, facts, moment) {
    return this.#at(name, facts, moment)?.count ?? 0;
  }

  note(name, facts, moment, source = "") {
    const count = this.#at(name, facts, moment, source);
    if (count) count.count += 1;
  }

  exceeds({ name, value, source }, facts, moment) {
    if (name !== "rateLimit") return false;
    for (const [rate, limit] of Object.entries(value)) {
      const count = this.#at(rate, facts, moment, source);
      if (!count || count.count + 1 > limit) return true; // a limit that cannot be kept lets nothing through
      count.count += 1;
    }
    return false;
  }

  #at(name, facts, moment, source = "") {
    const [, key, unit] = RATE.exec(name);
    const value = facts.value(key);
    if (typeof value !== "string") return undefined;
    const window = Math.floor(moment.getTime() / 1000 / WINDOWS[unit]);
    const id = `${source}\n${name}\n${value}`;
    let count = this.#counts.get(id);
    if (count?.window !== window) {
      if (!count && this.#counts.size >= MAX_COUNTERS)
        this.#counts.delete(this.#counts.keys().next().value);
      this.#counts.set(id, (count = { window, count: 0 }));
    }
    return count;
  }
}
