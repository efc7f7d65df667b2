import type { Explanation, RuntimeState } from "./index.js";

/** A Runtime, or what tells the same, such as of a runtime elsewhere. */
export interface Shown {
  state(): RuntimeState | Promise<RuntimeState>;
  explain(address: string): Explanation | Promise<Explanation>;
}

export interface Panel {
  /** Look now. */
  refresh(): Promise<void>;
  /** As if the address had been typed. */
  explain(address: string): Promise<void>;
  remove(): void;
}

/** Show what there is in a runtime; throws a TypeError for wrong arguments. `every`: ms between two looks. */
export function mountPanel(
  runtime: Shown,
  element: { attachShadow(init: { mode: "open" | "closed" }): unknown },
  options?: { every?: number },
): Panel;
