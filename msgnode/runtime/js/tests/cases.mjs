/** Cases that both languages share, one a line; the numbers are those of docs/reference/. */

export async function cases(name) {
  const url = new URL(`${name}-cases.jsonl`, import.meta.url);
  const text = globalThis.process
    ? (await import("node:fs")).readFileSync(url, "utf8")
    : await (await fetch(url)).text();
  return text
    .trim()
    .split("\n")
    .flatMap((line) => {
      const { each = [null] } = JSON.parse(line);
      return each.map((value) => JSON.parse(line.replaceAll('"$"', () => JSON.stringify(value))));
    });
}

/** What is found, as far as it is expected: of objects only the fields that are named. */
export function like(expected, found) {
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  if (!isObject(expected) || !isObject(found)) return found ?? null;
  return Object.fromEntries(
    Object.entries(expected).map(([key, value]) => [key, like(value, found[key])]),
  );
}
