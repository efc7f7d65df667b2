/** The words of the policy language: attributes with their kinds, operators, algorithms. Pure. */

const names = (text, kind) => text.split(" ").map((name) => [name, kind]);

/**
 * How values are compared. `text`, `folded` (without case), `time`, `date` and `weekday` are one text each;
 * `number`, `flag`, `list` and `any` may turn out to be something else.
 */
const ATTRIBUTES = new Map([
  ...names(
    "msgFrom msgTo msgType srcHyperty dstHyperty hyperty srcUsername srcIDP srcSession srcAddress",
    "text",
  ),
  ...names(
    "actionType srcScheme dstScheme srcSPDomain dstSPDomain direction srcIDPDomain srcOrigin peer domain domainRegistry",
    "folded",
  ),
  ...names(
    "msgId resource resourceType bodyValue valueUser valueNumber valueExpires valueDescriptor subscription",
    "any",
  ),
  ...names("srcRuntime dstRuntime dstUsername", "any"),
  ...names("valueAllocated valueResources subscribeTo srcGroups userRegistries", "list"),
  ...names("auth useSSL", "flag"),
  ...names("bytes addrAllastMin hops port", "number"),
  ...names("time", "time"),
  ...names("date", "date"),
  ...names("weekday", "weekday"),
]);

export const PLAIN = new Set(["text", "folded", "time", "date", "weekday"]);
export const OPERATORS = [
  "equals",
  "in",
  "moreThan",
  "lessThan",
  "between",
  "contains",
  "like",
  "exists",
];
export const KEYWORDS = ["allOf", "anyOf", "not"];
export const WEEKDAYS = [
  "monday",
  "tuesday",
  "wednesday",
  "thursday",
  "friday",
  "saturday",
  "sunday",
];
export const EFFECTS = ["permit", "deny"];
export const DUE = [...EFFECTS, "notApplicable", "indeterminate"];
export const OBLIGATIONS = [
  "limitByNumberOfEntries",
  "limitByConditionOfEntries",
  "rateLimit",
  "inform",
  "info",
  "log",
  "emailto",
];
export const RATE = /^rate\.([A-Za-z]+)\.(second|minute|hour|day)$/;
export const WINDOWS = { second: 1, minute: 60, hour: 3600, day: 86400 };

const RATE_KEYS =
  "srcUsername srcIDPDomain srcSession srcAddress srcSPDomain srcRuntime msgFrom msgTo dstSPDomain peer".split(
    " ",
  );
const BODY_FIELD = /^body(\.[A-Za-z_][A-Za-z0-9_-]*)+$/;

const ALIASES = {
  actType: "actionType",
  idp: "srcIDP",
  origin: "srcOrigin",
  srcDomain: "srcIDPDomain",
  srcUser: "srcUsername",
  valueAllocate: "valueAllocated",
  domainUrl: "domain",
  domainRegistryUrl: "domainRegistry",
};

const ALGORITHMS = {
  ...Object.fromEntries(
    [
      "blockOverrides",
      "allowOverrides",
      "firstApplicable",
      "denyUnlessPermit",
      "permitUnlessDeny",
    ].map((name) => [name, name]),
  ),
  denyOverrides: "blockOverrides",
  "deny-overrides": "blockOverrides",
  permitOverrides: "allowOverrides",
  "allow-overrides": "allowOverrides",
  "permit-overrides": "allowOverrides",
  "first-applicable": "firstApplicable",
  "deny-unless-permit": "denyUnlessPermit",
  "permit-unless-deny": "permitUnlessDeny",
};

/** Attributes whose values are all known, so that a misspelt one is found when it is read. */
export const CLOSED_WORLDS = {
  msgType:
    "registration addressAllocation objectAllocation discovery globalRegistry identityManagement dataSync p2pConnection".split(
      " ",
    ),
  weekday: WEEKDAYS,
  direction: ["in", "out"],
  srcOrigin: ["component", "foreign", "operator", "runtime"],
};

/** Read as another value (the guideline calls dataSync a subscription). */
export const SYNONYMS = { msgType: { subscription: "dataSync" } };

/** The one name of an attribute. */
export function nameOf(key) {
  const name = key.startsWith("<") && key.endsWith(">") ? key.slice(1, -1) : key;
  return Object.hasOwn(ALIASES, name) ? ALIASES[name] : name;
}

/** The kind of an attribute under its one name, undefined if there is none. */
export function kindOf(name) {
  const rate = RATE.exec(name);
  if (rate && RATE_KEYS.includes(rate[1])) return "number";
  return ATTRIBUTES.get(name) ?? (BODY_FIELD.test(name) ? "any" : undefined);
}

/** The one name of a combining algorithm, undefined if there is none. */
export function algorithmOf(name) {
  return Object.hasOwn(ALGORITHMS, name) ? ALGORITHMS[name] : undefined;
}
