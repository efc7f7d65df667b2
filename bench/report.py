"""Shows a result as a table and writes it as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .figures import Case, PartResult, Ratio, Spread


def table(result: PartResult) -> str:
    """The part as text: every case with its spread, then the ratios."""
    lines = [result.title, ""]
    names = list(dict.fromkeys(case.name for case in result.cases))
    wide = max(len(name) for name in names)
    server = max(len(case.server) for case in result.cases)
    for name in names:
        lines += [
            f"  {name:<{wide}}  {case.server:<{server}}  {_shown(case, result.headline)}"
            for case in result.cases
            if case.name == name
        ]
    lines.append("")
    for each in result.ratios:
        lines.append(f"  {each.case:<{wide}}  {_judged(each)}")
    lines += [f"  {note}" for note in result.notes]
    return "\n".join(lines) + "\n"


def write(result: PartResult, conditions: dict[str, Any], directory: Path) -> Path:
    """Write `<part>.json` into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.part}.json"
    content = {"conditions": conditions, **result.as_json()}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def _shown(case: Case, headline: str) -> str:
    spread = Spread.of(case.values(headline))
    digits = 0 if spread.median >= 100 else 1
    text = f"{spread.median:>9,.{digits}f}  ({spread.low:,.{digits}f}-{spread.high:,.{digits}f})"
    extras = [
        ("p50", "p50_us", " µs", 0),
        ("p99", "p99_us", " µs", 0),
        ("p99.9", "p999_us", " µs", 0),
        ("lost", "lost", "", 0),
        ("decisions kept", "decisions_kept", "", 2),
        ("addresses known", "addresses_kept", "", 2),
        ("cut texts known", "redaction_kept", "", 2),
        ("server cpu", "server_cpu", "", 2),
        ("generator cpu", "generator_cpu", "", 2),
        ("after its start", "after_start_s", " s", 1),
        ("opened in", "opened_in_s", " s", 1),
    ]
    for label, key, unit, places in extras:
        values = case.values(key)
        if values:
            value = sum(values) if key == "lost" else Spread.of(values).median
            text += f"  {label} {value:,.{places}f}{unit}"
    return text


def _judged(each: Ratio) -> str:
    spread = each.spread
    text = f"{each.over} : {each.under}, {each.key}  {spread.median:.2f}"
    if spread.low != spread.high:
        text += f"  ({spread.low:.2f}-{spread.high:.2f})"
    if each.target is not None:
        text += f"  aimed at {each.wants} {each.target:g}: {'met' if each.is_met else 'missed'}"
    return text
