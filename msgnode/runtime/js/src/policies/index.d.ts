/** Types of the local policies. */

import type { Handler, Message } from "../index.js";

export interface Obligation { name: string; value: any; source: string }

export interface Decision {
  effect: "permit" | "deny" | "notApplicable" | "indeterminate";
  /** What an indeterminate decision might have been: "D", "P" or "DP". */
  side: string;
  deciding: string[];
  obligations: Obligation[];
  advice: Obligation[];
  errors: string[];
}

export class PolicyError extends Error { readonly problems: string[] }
export class CannotTell extends Error {}

export interface Speaker {
  username?: string; issuer?: string; groups?: string[]; session?: string; address?: string;
  runtimeURL?: string; origin?: "runtime" | "foreign" | "component" | "operator";
}

export interface Circumstances {
  direction?: "in" | "out";
  speaker?: Speaker;
  /** A Date whose UTC fields are the local time. */
  now?: Date;
  node?: Record<string, any>;
  lookUp?: (name: string, facts: Facts) => any;
}

export class Facts {
  constructor(message: Message, around?: Circumstances);
  give(values: Record<string, any>): this;
  value(name: string): any;
}

export class PolicyEngine {
  constructor(document: object | object[], options?: { lists?: Record<string, string[]>; forced?: boolean });
  readonly attributes: Set<string>;
  readonly isEmpty: boolean;
  decide(facts: Facts): Decision;
}

export function policyHandler(
  engine: PolicyEngine,
  options?: {
    now?: () => Date;
    node?: Record<string, any>;
    lookUp?: (name: string, facts: Facts) => any;
    speaker?: (message: Message, context: { direction: "in" | "out"; via?: string }) => Speaker;
    log?: (obligation: Obligation, message: Message, effect: string) => void;
    deliverNotApplicable?: boolean;
    deliverIndeterminate?: boolean;
  },
): Handler;

export function rewritten(body: any, obligations: Obligation[]): any;
