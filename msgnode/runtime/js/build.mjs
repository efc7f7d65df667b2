/**
 * Makes src/min/, the package for pages that load it as it is: `npm run build`, and by itself before `npm pack`.
 *
 * What a page loads at once is one file, index.js; each part that is loaded when it is used has its own, and takes from
 * index.js what both need. esbuild alone would split that file by what is shared, which compresses worse.
 *
 * Rules
 * - The modules are plain (msgnode/stubs/bundle.py): an import is one line of names in braces.
 * - Files lie beside one another, so that `../` of each is src/, where the sandboxes find what they are made of.
 */

import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { minify } from "terser";

const SRC = resolve(dirname(fileURLToPath(import.meta.url)), "src");
const OUT = resolve(SRC, "min");
const ENTRY = resolve(SRC, "index.js");
const PARTS = ["openid.js", "panel.js", "policies/index.js", "protostub.js", "syncher/index.js"];
const IMPORT = /^(?:import|export) \{([^}]*)\} from "(\.[^"]*)";$/gm;
const LAZY = /\bimport\("(\.[^"]+)"\)/g;
const COMMON = { bundle: true, format: "esm", minify: true, target: "es2022", logLevel: "warning" };

/** esbuild's files, and what terser still finds to shorten in them. */
async function write(options) {
  const { outputFiles } = await build({ ...COMMON, ...options, write: false });
  for (const { path, text } of outputFiles) {
    const { code } = await minify(text, { module: true, compress: { passes: 2 } });
    await writeFile(path, code);
  }
}

/** Modules by path: {text, needs: [[path, names]], lazy: [path]}. */
async function modulesFrom(path, found = new Map()) {
  if (found.has(path)) return found;
  const text = await readFile(path, "utf8");
  const at = (name) => resolve(dirname(path), name);
  const first = (each) => each.trim().split(" as ")[0];
  const names = (list) => list.split(",").map(first).filter(Boolean);
  const needs = [...text.matchAll(IMPORT)].map(([, list, from]) => [at(from), names(list)]);
  const stars = [...text.matchAll(/^export \* from "(\.[^"]*)";$/gm)].map(([, from]) => [
    at(from),
    [],
  ]);
  const lazy = [...text.matchAll(LAZY)].map(([, from]) => at(from));
  found.set(path, { needs: [...needs, ...stars], lazy });
  for (const [each] of found.get(path).needs) await modulesFrom(each, found);
  return found;
}

const core = await modulesFrom(ENTRY);
const entries = new Set(PARTS.map((each) => resolve(SRC, each)));
const shared = new Map(); // path in the core -> names that parts need of it
for (const { lazy } of core.values()) for (const each of lazy) entries.add(each);
const seen = new Map(core);
for (const entry of entries) {
  const before = new Set(seen.keys());
  await modulesFrom(entry, seen);
  for (const [path, { needs, lazy }] of seen) {
    if (before.has(path)) continue;
    for (const each of lazy) if (!core.has(each)) entries.add(each);
    for (const [each, names] of needs)
      if (core.has(each)) shared.set(each, new Set([...(shared.get(each) ?? []), ...names]));
  }
}

/** What index.js calls a name of a module that parts need. */
const ids = new Map();
const idOf = (path, name) => {
  const key = `${path} ${name}`;
  if (!ids.has(key)) ids.set(key, `$${ids.size.toString(36)}`);
  return ids.get(key);
};
const fileOf = (path) =>
  relative(SRC, path)
    .replace(/\/index\.js$/, ".js")
    .replaceAll("/", "-");
/** Another file of these, which is loaded when it is used. */
const beside = ({ path, resolveDir, kind }) =>
  kind === "dynamic-import" && path.startsWith(".")
    ? { path: `./${fileOf(resolve(resolveDir, path))}`, external: true }
    : undefined;

await rm(OUT, { recursive: true, force: true });
await mkdir(OUT);
await write({
  stdin: {
    resolveDir: SRC,
    contents: [
      `export * from "./index.js";`,
      ...[...shared].map(([path, names]) => {
        const list = [...names].map((name) => `${name} as ${idOf(path, name)}`);
        return `export { ${list.join(", ")} } from "./${relative(SRC, path)}";`;
      }),
    ].join("\n"),
  },
  outfile: resolve(OUT, "index.js"),
  plugins: [{ name: "beside", setup: ({ onResolve }) => onResolve({ filter: /^\./ }, beside) }],
});

const fromCore = {
  name: "from the core",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^\./ }, (asked) => {
      if (asked.namespace === "core") return { path: "./index.js", external: true };
      const path = resolve(asked.resolveDir, asked.path);
      // By its path in the package: names of chunks are hashes, also of paths.
      return core.has(path) ? { path: relative(SRC, path), namespace: "core" } : undefined;
    });
    onLoad({ filter: /./, namespace: "core" }, (asked) => {
      const path = resolve(SRC, asked.path);
      const list = [...(shared.get(path) ?? [])].map((name) => `${idOf(path, name)} as ${name}`);
      return { contents: `export { ${list.join(", ")} } from "./index.js";`, resolveDir: SRC };
    });
  },
};
await write({
  splitting: true,
  entryPoints: [...entries].map((path) => ({ in: path, out: fileOf(path).replace(/\.js$/, "") })),
  outdir: OUT,
  chunkNames: "shared-[hash]",
  plugins: [fromCore],
});
