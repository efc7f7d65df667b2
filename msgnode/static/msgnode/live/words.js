/** Figures for people: separators, bytes, times of day in the browser's zone with UTC on hover. */

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const hours = new Intl.DateTimeFormat("en", { timeStyle: "medium", hourCycle: "h23" });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function count(value) {
  return plain.format(value >= 100 ? Math.round(value) : value);
}

export function bytes(value) {
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${count(value)} ${UNITS[unit]}`;
}

export function microseconds(value) {
  if (!value) return "–";
  return value >= 1000
    ? `${plain.format(value / 1000)} ms`
    : `${plain.format(Math.round(value))} µs`;
}

export function figure(value, unit) {
  if (value === undefined || value === null) return "–";
  if (unit === "bytes") return `${bytes(value)}/s`;
  if (unit === "µs") return microseconds(value);
  return `${count(value)}/s`;
}

/** A time element: local, with UTC on hover. */
export function time(seconds, withDate = false) {
  const at = new Date(seconds * 1000);
  const shown = document.createElement("time");
  shown.dateTime = at.toISOString();
  shown.title = `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  shown.textContent = clock(seconds, withDate);
  return shown;
}

export function clock(seconds, withDate = false) {
  const at = new Date(seconds * 1000);
  const day = withDate ? `${at.toLocaleDateString("en", { month: "short", day: "numeric" })} ` : "";
  return day + hours.format(at);
}
