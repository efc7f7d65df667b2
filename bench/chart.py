"""Draws a result as an SVG bar chart: one group a case, one bar a server, whiskers for the spread.

Colours keep their distance for colour-blind readers, every bar carries its figure, and the text
follows the reader's light or dark scheme.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from .figures import PartResult, Spread

_COLOURS = ("#9aa5b1", "#1f77b4", "#d0b48c", "#d95f02", "#1b9e77", "#7570b3")
_BAR, _GAP, _LEFT, _WIDTH, _TOP = 16, 14, 220, 520, 64
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.title{font-size:15px;font-weight:600}"
    ".note{fill:#666}.whisker{stroke:#444;stroke-width:1}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.note{fill:#999}.whisker{stroke:#ccc}}"
)


def draw(result: PartResult, caption: str, directory: Path) -> Path:
    """Write `<part>.svg` into the directory."""
    servers = list(dict.fromkeys(case.server for case in result.cases))
    names = list(dict.fromkeys(case.name for case in result.cases))
    largest = max(max(case.values(result.headline)) for case in result.cases)
    scale = _WIDTH / largest
    parts: list[str] = []
    y = _TOP
    for name in names:
        group = [case for case in result.cases if case.name == name]
        middle = y + len(group) * _BAR / 2 + 4
        parts.append(
            f'<text x="{_LEFT - 10}" y="{middle:g}" text-anchor="end">{escape(name)}</text>'
        )
        for case in group:
            spread = Spread.of(case.values(result.headline))
            colour = _COLOURS[servers.index(case.server) % len(_COLOURS)]
            parts.append(_bar(y, spread, scale, colour, f"{name}, {case.server}"))
            y += _BAR
        y += _GAP
    legend = _legend(servers)
    height = y + 24
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.part}.svg"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 110} {height}" '
        f'role="img" aria-label="{escape(result.title)}"><style>{_STYLE}</style>'
        f'<text class="title" x="10" y="22">{escape(result.title)}</text>{legend}'
        f'{"".join(parts)}<text class="note" x="10" y="{height - 8}">{escape(caption)}</text></svg>'
    )
    path.write_text(svg + "\n")
    return path


def _bar(y: float, spread: Spread, scale: float, colour: str, title: str) -> str:
    middle = y + _BAR / 2 - 1
    low, high, end = (_LEFT + value * scale for value in (spread.low, spread.high, spread.median))
    figure = f"{spread.median:,.0f}" if spread.median >= 100 else f"{spread.median:.1f}"
    return (
        f'<rect x="{_LEFT}" y="{y}" width="{max(end - _LEFT, 1):.1f}" height="{_BAR - 2}" '
        f'fill="{colour}"><title>{escape(title)}: {figure}</title></rect>'
        f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
        f'<text x="{max(end, high) + 6:.1f}" y="{middle + 4}">{figure}</text>'
    )


def _legend(servers: list[str]) -> str:
    parts, x = [], 10
    for number, server in enumerate(servers):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(
            f'<rect x="{x}" y="34" width="12" height="12" fill="{colour}"/>'
            f'<text x="{x + 17}" y="45">{escape(server)}</text>'
        )
        x += 40 + 7 * len(server)
    return "".join(parts)
