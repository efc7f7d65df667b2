/** The cases that both languages share, one a line; the numbers are those of docs/reference/p2p.md. */

export async function cases() {
  const url = new URL("p2p-cases.jsonl", import.meta.url);
  const text = globalThis.process
    ? (await import("node:fs")).readFileSync(url, "utf8")
    : await (await fetch(url)).text();
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}
