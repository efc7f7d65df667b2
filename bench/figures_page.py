"""The page of all figures: `python -m bench.figures_page` makes docs/figures.md of bench/results/.

Nothing on it is written by hand; `python -m bench` makes it anew after each part that it measured
whole, and a test compares it with the results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .figures import Case, Spread
from .report import besides, figure

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "figures.md"
LEAST_ROUNDS = 5
_HEAD = """# All figures

Made by `make bench` of what it has measured, nothing by hand: [what is measured and how to read
it](performance.md). A figure is the median of its rounds, with the lowest and the highest. A ratio
is taken round by round, of two that took turns in one run. Each part says when it was measured,
and under what load the machine was when it began; one of fewer than five rounds says so.
"""


def page() -> str:
    """The page, of all results that there are, in the order of their names."""
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    return "\n".join([_HEAD, *map(_part, results)])


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def _part(result: dict[str, Any]) -> str:
    lines = [f"## {result['title']}", "", _caption(result), ""]
    lines += ["| load | server | figure | beside it |", "|---|---|---|---|"]
    for each in result["cases"]:
        case = Case(each["name"], each["server"], each["samples"])
        told = figure(Spread.of(case.values(result["headline"])))
        words = ", ".join(besides(case, result["headline"]))
        lines.append(f"| {case.name} | {case.server} | {told} | {words} |")
    if result["ratios"]:
        lines += ["", "| load | ratio | of | figure | aim |", "|---|---|---|---|---|"]
        lines += [_ratio(each) for each in result["ratios"]]
    if result["notes"]:
        lines += ["", *(f"- {note}" for note in result["notes"])]
    if (ROOT / "docs" / "bench" / f"{result['part']}.svg").exists():
        lines += ["", f"![{result['title']}](bench/{result['part']}.svg)"]
    return "\n".join([*lines, ""])


def _caption(result: dict[str, Any]) -> str:
    of = result["conditions"]
    load = " / ".join(f"{each:g}" for each in of["load_average"])
    revision = f" at revision {of['revision']}" if "revision" in of else ""
    few = "" if of["rounds"] >= LEAST_ROUNDS else " **Fewer than five rounds.**"
    rounds = "1 round" if of["rounds"] == 1 else f"{of['rounds']} rounds"
    return (
        f"`make bench PART={result['part']}`, {of['at'][:10]}{revision}: {of['cores']} cores,"
        f" {of['cpu']}, load {load}, {rounds}.{few}"
    )


def _ratio(each: dict[str, Any]) -> str:
    aim = ""
    if each["target"] is not None:
        sign = "≥" if each["wants"] == "at least" else "≤"
        aim = f"{sign} {each['target']:g}: {'met' if each['is_met'] else '**missed**'}"
    spread = Spread(each["median"], each["low"], each["high"])
    of = f"{each['over']} : {each['under']}"
    return f"| {each['case']} | {of} | {each['of']} | {figure(spread)} | {aim} |"


if __name__ == "__main__":
    write()
