/**
 * The charts of pages that move, with the Chart.js of the console, and their twins as tables.
 *
 * Lines differ in dash as well as in colour (those of Okabe and Ito), and the theme is followed when it
 * is switched. A table is filled when it is opened.
 */

import { clock, count, time } from "./words.js";

const SERIES = {
  traffic: [
    ["messages", "messages in", "#0072b2", []],
    ["copies", "messages out", "#e69f00", [6, 3]],
  ],
  failures: [
    ["refused", "refused", "#d55e00", []],
    ["undeliverable", "undeliverable", "#cc79a7", [6, 3]],
  ],
  latency: [
    ["p50", "p50", "#0072b2", []],
    ["p99", "p99", "#d55e00", [2, 2]],
  ],
  load: [["cpu", "processor", "#009e73", []]],
  session: [
    ["messages", "from the session", "#0072b2", []],
    ["copies", "to the session", "#e69f00", [6, 3]],
    ["failed", "failed", "#d55e00", [2, 2]],
  ],
  volume: [
    ["bytes_in", "from the session", "#0072b2", []],
    ["bytes_out", "to the session", "#e69f00", [6, 3]],
    ["waiting", "waiting", "#cc79a7", [2, 2]],
  ],
};
const ROWS = 60;
const isDark = () => document.documentElement.classList.contains("dark");

export class Charts {
  #charts = new Map(); // name -> chart
  #points = [];
  #withDate = false;
  #wasDark = isDark();

  constructor(root) {
    for (const canvas of root.querySelectorAll("canvas[data-chart]")) this.#draw(canvas);
    for (const table of root.querySelectorAll("table[data-table]")) {
      table.closest("details").addEventListener("toggle", () => this.#fill(table));
    }
    this.tables = [...root.querySelectorAll("table[data-table]")];
    new MutationObserver(() => {
      if (isDark() === this.#wasDark) return;
      this.#wasDark = isDark();
      for (const chart of this.#charts.values()) this.#ink(chart);
      this.#update();
    }).observe(document.documentElement, { attributeFilter: ["class"] });
  }

  get last() {
    return this.#points.at(-1)?.at ?? 0;
  }

  /** Show these points instead of all that were. */
  show(points, withDate) {
    this.#points = points;
    this.#withDate = withDate;
    this.#update();
  }

  /** One more point, and the oldest out if there are more than `most`. */
  add(point, most) {
    this.#points.push(point);
    if (this.#points.length > most) this.#points.shift();
    this.#update();
  }

  #draw(canvas) {
    const datasets = SERIES[canvas.dataset.chart].map(([, label, colour, dash]) => ({
      label,
      data: [],
      borderColor: colour,
      backgroundColor: colour,
      borderDash: dash,
      borderWidth: 2,
      pointRadius: 0,
      pointHitRadius: 8,
      spanGaps: false,
      tension: 0,
    }));
    const chart = new Chart(canvas, {
      type: "line",
      data: { labels: [], datasets },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        normalized: true,
        interaction: { mode: "index", intersect: false },
        plugins: {
          legend: {
            position: "bottom",
            labels: { usePointStyle: true, pointStyle: "line", pointStyleWidth: 28 },
          },
        },
        scales: {
          x: {
            ticks: { maxTicksLimit: 6, maxRotation: 0, autoSkipPadding: 12 },
            grid: { display: false },
          },
          y: { beginAtZero: true, suggestedMax: 1, ticks: { maxTicksLimit: 5 } },
        },
      },
    });
    this.#charts.set(canvas.dataset.chart, chart);
    this.#ink(chart);
    chart.update();
  }

  #ink(chart) {
    const ink = isDark() ? "#d4d4d8" : "#3f3f46";
    const { scales, plugins } = chart.options;
    scales.x.ticks.color = scales.y.ticks.color = plugins.legend.labels.color = ink;
    scales.y.grid = { color: isDark() ? "rgb(255 255 255 / .14)" : "rgb(0 0 0 / .1)" };
    chart.canvas.dataset.ink = ink;
  }

  #update() {
    const labels = this.#points.map(({ at }) => clock(at, this.#withDate));
    for (const [name, chart] of this.#charts) {
      chart.data.labels = labels;
      SERIES[name].forEach(([field], index) => {
        chart.data.datasets[index].data = this.#points.map((point) => point[field]);
      });
      chart.update();
      chart.canvas.dataset.points = labels.length;
    }
    for (const table of this.tables) this.#fill(table);
  }

  #fill(table) {
    if (!table.closest("details").open) return;
    const series = SERIES[table.dataset.table];
    const head = row("th", ["Time", ...series.map(([, label]) => label)]);
    table.tHead.replaceChildren(head);
    const newest = this.#points.slice(-ROWS).reverse();
    table.tBodies[0].replaceChildren(
      ...newest.map((point) =>
        row("td", [
          time(point.at, this.#withDate),
          ...series.map(([field]) => count(point[field])),
        ]),
      ),
    );
  }
}

function row(tag, cells) {
  const line = document.createElement("tr");
  cells.forEach((cell, index) => {
    const element = document.createElement(tag);
    if (tag === "th") element.scope = "col";
    if (index) element.className = "console-right";
    element.append(cell);
    line.append(element);
  });
  return line;
}
