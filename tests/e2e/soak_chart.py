"""The chart of a soak: python -m tests.e2e.soak_chart soak.csv > docs/assets/soak.svg

One picture for each figure of `test_soak.Sample`, a line for each worker, from nothing to the most.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, STEP = 640, 120, 70, 28, 170
FIGURES = (("memory, MiB", 1024 * 1024), ("open files", 1), ("threads", 1))
COLORS = ("#0b6fa4", "#c2571a")
TEXT = '<text x="{}" y="{}" font-size="13" text-anchor="{}" fill="#555">{}</text>'


def chart(rows: list[list[float]]) -> str:
    """The chart as SVG.

    Args:
        rows: seconds, number of the worker, and its figures, as the soak writes them.
    """
    first, last = rows[0][0], rows[-1][0]
    size = f"0 0 {LEFT + WIDTH + 20} {TOP + STEP * len(FIGURES)}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif">']
    for number, (name, unit) in enumerate(FIGURES):
        foot = TOP + STEP * number + HEIGHT
        most = max(row[2 + number] for row in rows)
        lines = defaultdict(list)
        for row in rows:
            x = LEFT + WIDTH * (row[0] - first) / (last - first)
            lines[row[1]].append(f"{x:.1f},{foot - HEIGHT * row[2 + number] / most:.1f}")
        parts.append(TEXT.format(LEFT, foot - HEIGHT - 8, "start", name))
        parts.append(TEXT.format(LEFT - 6, foot - HEIGHT + 5, "end", f"{most / unit:,.0f}"))
        parts.append(TEXT.format(LEFT - 6, foot + 5, "end", "0"))
        axes = f"M{LEFT} {foot - HEIGHT}V{foot}h{WIDTH}"
        parts.append(f'<path d="{axes}" stroke="#999" fill="none"/>')
        for points, color in zip(lines.values(), COLORS, strict=True):
            parts.append(f'<polyline points="{" ".join(points)}" stroke="{color}" fill="none"/>')
        for minute in range(0, int((last - first) / 60) + 1, 10):
            x = LEFT + WIDTH * 60 * minute / (last - first)
            parts.append(TEXT.format(f"{x:.1f}", foot + 18, "middle", f"{minute} min"))
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    with Path(sys.argv[1]).open() as file:
        sys.stdout.write(chart([[float(value) for value in row] for row in csv.reader(file)]))
