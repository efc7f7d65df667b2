/** Parts of the runtime whose code is loaded when they are first used. */

import { LoadError } from "./errors.js";

/**
 * An object whose methods, all asynchronous, are those of what `load` makes when one is first called.
 *
 * @param load resolves with it; called again after a failure
 * @param names of the methods
 * @returns {part, used(): the promise of what was made, undefined if nothing was}
 */
export function whenUsed(load, names) {
  let made;
  const get = () => {
    made ??= load().catch((error) => {
      made = undefined;
      throw error instanceof TypeError ? notThere(error) : error;
    });
    return made;
  };
  const part = {};
  for (const name of names) part[name] = async (...given) => (await get())[name](...given);
  return { part: Object.freeze(part), used: () => made };
}

/** What import() rejects with where a module cannot be fetched. */
function notThere(error) {
  return new LoadError(503, `A part of the runtime cannot be loaded: ${error.message}`);
}
