/**
 * The forms in which stubs are packed, and the ways in which they are started. Used inside every sandbox, the
 * node's too.
 *
 *   ES module, also minified      System.register      CommonJS and UMD, if they need no other module
 *
 * The form is what the text is by its syntax: what cannot be parsed as a script is a module.
 */

/**
 * The exports of a stub's text.
 *
 * @param source its text
 * @param importModule resolves the text of an ES module with its exports
 * @returns {form: "module", "system" or "umd", exported}
 */
export async function exportsOf(source, importModule) {
  const run = scriptOf(source);
  if (!run) return { form: "module", exported: await importModule(source) };
  const module = { exports: {} };
  const registered = [];
  const System = {
    register(...parts) {
      const [dependencies, declare] = parts.slice(-2);
      if (dependencies.length) moduleNeeded(dependencies[0]);
      registered.push(declare);
    },
  };
  run(module, module.exports, moduleNeeded, System);
  if (registered.length) return { form: "system", exported: await declared(registered) };
  const made = module.exports;
  const isEmpty = typeof made === "object" && made !== null && !Object.keys(made).length;
  return { form: "umd", exported: isEmpty ? { activate: globalThis.activate } : made };
}

/** A function that runs the text as a script; null if it is none, or if scripts are not allowed here. */
function scriptOf(source) {
  try {
    return new Function("module", "exports", "require", "System", source);
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof EvalError) return null;
    throw error;
  }
}

function moduleNeeded(name) {
  throw new Error(`The stub needs the module ${name}, which is not part of it.`);
}

async function declared(registered) {
  const exported = {};
  const tell = (name, value) => {
    if (typeof name === "string") exported[name] = value;
    else Object.assign(exported, name);
    return value;
  };
  const context = { meta: {}, import: moduleNeeded };
  for (const declare of registered) await declare(tell, context)?.execute?.();
  return exported;
}

/**
 * Start a stub the way its exports ask for: activate(), at the default export too, a function, or a class.
 *
 * @returns its instance, undefined if activate() gave none
 */
export async function startedStub(exported, url, bus, config, factory = {}) {
  const other = exported?.default;
  const ways = [exported?.activate, other?.activate, other, exported];
  const entry = ways.find((each) => typeof each === "function");
  if (!entry) throw new Error("The stub exports neither a class nor activate().");
  const isClass = /^class\b/.test(Function.prototype.toString.call(entry));
  if (!isClass && typeof entry.prototype?._start !== "function") {
    const active = await entry(url, bus, config, factory);
    return active?.instance ?? active;
  }
  const instance = new entry(url, bus, config);
  if (typeof instance._start !== "function") throw new Error("The stub has no _start().");
  await instance._start(url, bus, config, factory);
  return instance;
}
