// Draws the charts of a report page from the JSON in #report-data, with the Chart.js of the console.
// Colours are those of Okabe and Ito, told apart by colour-blind readers; lines differ in dash too.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  // The console sets its theme after this script is read, and lets it be switched: see below.
  const isDark = () => document.documentElement.classList.contains("dark");
  let ink, grid;
  const colours = {
    delivered: "#0072b2",
    answered: "#56b4e9",
    queued: "#009e73",
    undeliverable: "#e69f00",
    permitted: "#0072b2",
    denied: "#d55e00",
    not_applicable: "#56b4e9",
    indeterminate: "#cc79a7",
    blocked: "#d55e00",
    refused: "#cc79a7",
    p50: "#0072b2",
    p95: "#e69f00",
    p99: "#d55e00",
    opened: "#009e73",
    resumed: "#0072b2",
    lost: "#e69f00",
    ended: "#d55e00",
    reserved: "#0072b2",
  };
  const readTheme = (dark) => {
    ink = dark ? "#d4d4d8" : "#3f3f46";
    grid = dark ? "rgb(255 255 255 / .12)" : "rgb(0 0 0 / .1)";
    colours.dropped = dark ? "#f4f4f5" : "#18181b";
  };
  const dashes = {
    p50: [],
    p95: [6, 3],
    p99: [2, 2],
    opened: [],
    resumed: [6, 3],
    lost: [2, 2],
    ended: [8, 2],
  };
  const axis = (more) => ({ ticks: { color: ink }, grid: { color: grid }, ...more });
  const hours = (more) =>
    axis({ ticks: { color: ink, maxRotation: 0, autoSkipPadding: 12 }, ...more });
  const legend = (type) => ({
    labels: {
      color: ink,
      boxWidth: 16,
      boxHeight: 8,
      ...(type === "line" && { usePointStyle: true, pointStyle: "line", pointStyleWidth: 28 }),
    },
  });
  const options = (more) => ({
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    interaction: { mode: "index", intersect: false },
    plugins: { legend: legend() },
    ...more,
  });
  const number = (value) => (value === null ? "no rows" : value.toLocaleString());

  const byHour = (type, datasets, scales) => ({
    type,
    data: { labels: data.hours, datasets },
    options: options({
      scales,
      plugins: {
        legend: legend(type),
        tooltip: {
          filter: (item) => item.raw !== 0,
          callbacks: {
            label: (item) => `${item.dataset.label}: ${number(item.raw)}`,
            footer: (items) => (items.length && data.odd[items[0].dataIndex] ? "Outlier" : ""),
          },
        },
      },
    }),
  });
  const stacked = (counts, more = []) => {
    const bars = Object.entries(counts)
      .filter(([, values]) => values.some((value) => value))
      .map(([name, values]) => ({
        label: name.replace("_", " "),
        data: values,
        stack: "messages",
        backgroundColor: colours[name],
        borderColor: data.odd.map((odd) => (odd ? ink : "transparent")),
        borderWidth: 1,
      }));
    return byHour("bar", [...more, ...bars], {
      x: hours({ stacked: true }),
      y: axis({ stacked: true, beginAtZero: true }),
    });
  };
  const upwards = () => ({ x: hours(), y: axis({ beginAtZero: true }) });
  const sideways = (labels, datasets, more) => ({
    type: "bar",
    data: { labels, datasets },
    options: options({
      indexAxis: "y",
      scales: {
        x: axis({ beginAtZero: true }),
        y: axis({ ticks: { color: ink, autoSkip: false } }),
      },
      ...more,
    }),
  });
  const sides = ({ labels, to, from }) =>
    sideways(labels, [
      { label: "to", data: to, backgroundColor: "#0072b2" },
      { label: "from", data: from, backgroundColor: "#e69f00" },
    ]);
  const flat = ({ labels, values }, what = "messages") =>
    sideways(labels, [{ label: what, data: values, backgroundColor: "#0072b2" }], {
      plugins: { legend: { display: false } },
    });
  const line = (label, values, colour, dash) => ({
    type: "line",
    label,
    data: values,
    borderColor: colour,
    backgroundColor: colour,
    borderDash: dash,
    borderWidth: 2,
    pointRadius: 2,
    spanGaps: false,
    tension: 0,
  });

  const lines = (series) =>
    byHour(
      "line",
      Object.entries(series).map(([name, values]) =>
        line(name, values, colours[name], dashes[name]),
      ),
      upwards(),
    );

  const draw = {
    outcomes() {
      const expected = data.expected.some((value) => value !== null && value !== undefined)
        ? [{ ...line("expected", data.expected, ink, [4, 4]), order: -1 }]
        : [];
      return stacked(data.outcomes, expected);
    },
    effects: () => stacked(data.effects),
    sessions: () => lines(data.sessions),
    reservations: () =>
      byHour(
        "bar",
        Object.entries(data.reservations).map(([name, values]) => ({
          label: name,
          data: values,
          backgroundColor: colours[name],
        })),
        upwards(),
      ),
    relayed: () => byHour("line", [line("bytes", data.relayed, "#0072b2", [])], upwards()),
    p2p: () => flat(data.p2p, "set-ups"),
    peers: () => sides(data.peers),
    networks: () => sides(data.networks),
    services: () => flat(data.services),
    forecast: () => ({
      type: "line",
      data: {
        labels: data.forecast.labels,
        datasets: [
          line("messages", data.forecast.days, "#0072b2", []),
          line("forecast", data.forecast.forecast, ink, [4, 4]),
          { ...line("low", data.forecast.low, "#e69f00", [2, 2]), fill: "+1" },
          line("high", data.forecast.high, "#e69f00", [2, 2]),
        ],
      },
      options: options({ scales: upwards() }),
    }),
    latency: () => lines(data.latency),
    types: () => flat(data.types),
    components: () => flat(data.components),
    pairs: () => flat(data.pairs),
  };

  // Dragging over hours shows only these in every chart by hour; a double click shows all again.
  const charts = new Map(); // canvas -> its chart
  const zoomable = ["outcomes", "latency", "effects", "sessions", "reservations", "relayed"];
  const show = (first, last) => {
    for (const [canvas, chart] of charts) {
      if (!zoomable.includes(canvas.dataset.chart)) continue;
      Object.assign(chart.options.scales.x, { min: first, max: last });
      chart.update();
    }
  };
  const hourAt = (canvas, event) => charts.get(canvas).scales.x.getValueForPixel(event.offsetX);
  const letZoom = (canvas) => {
    let from = null;
    canvas.addEventListener("pointerdown", (event) => {
      from = hourAt(canvas, event);
    });
    canvas.addEventListener("pointerup", (event) => {
      const [first, last] = [from, hourAt(canvas, event)].sort((a, b) => a - b);
      if (from !== null && last - first >= 2)
        show(Math.max(0, first), Math.min(data.hours.length - 1, last));
      from = null;
    });
    canvas.addEventListener("dblclick", () => show(undefined, undefined));
  };

  const canvases = document.querySelectorAll("canvas[data-chart]");
  const drawAll = (dark) => {
    readTheme(dark);
    for (const canvas of canvases) {
      charts.get(canvas)?.destroy();
      charts.set(canvas, new Chart(canvas, draw[canvas.dataset.chart]()));
      canvas.dataset.ink = ink;
    }
  };
  let drawnDark = isDark();
  drawAll(drawnDark);
  for (const canvas of canvases) if (zoomable.includes(canvas.dataset.chart)) letZoom(canvas);
  new MutationObserver(() => {
    if (isDark() !== drawnDark) drawAll((drawnDark = isDark()));
  }).observe(document.documentElement, { attributeFilter: ["class"] });
  // Paper is white whatever the screen is, and nobody unfolds a table on it.
  const folded = new Set();
  window.addEventListener("beforeprint", () => {
    for (const table of document.querySelectorAll(".report-table details:not([open])")) {
      folded.add(table);
      table.open = true;
    }
    drawAll(false);
    for (const chart of charts.values()) chart.resize();
  });
  window.addEventListener("afterprint", () => {
    for (const table of folded) table.open = false;
    folded.clear();
    drawAll(drawnDark);
  });
})();
