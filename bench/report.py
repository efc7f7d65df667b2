"""Shows a result as a table and writes it as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .figures import Case, PartResult, Ratio, Spread

_BESIDES = (
    ("p50", "p50_us", " µs", 0),
    ("p99", "p99_us", " µs", 0),
    ("p99.9", "p999_us", " µs", 0),
    ("requests p50", "request_p50_us", " µs", 0),
    ("requests p99", "request_p99_us", " µs", 0),
    ("p50", "p50_ms", " ms", 1),
    ("p99", "p99_ms", " ms", 1),
    ("beside it p99", "bystander_p99_ms", " ms", 1),
    ("beside it worst", "bystander_worst_ms", " ms", 0),
    ("last answer", "last_answer_s", " s", 2),
    ("processor time of each", "cpu_ms_each", " ms", 2),
    ("processor time of each", "cpu_us_each", " µs", 1),
    ("processor time of each", "us_per_update", " µs", 0),
    ("batches between workers", "batches_of_an_answer", "", 1),
    ("sessions of others known", "sessions_known", "", 0),
    ("held back", "held_back", "", 0),
    ("memory", "memory_mb", " MB", 0),
    ("memory of each", "kib_each", " KiB", 1),
    ("files", "files", "", 0),
    ("lost", "lost", "", 0),
    ("decisions kept", "decisions_kept", "", 2),
    ("cut texts known", "redaction_kept", "", 2),
    ("server cpu", "server_cpu", "", 2),
    ("generator cpu", "generator_cpu", "", 2),
    ("after its start", "after_start_s", " s", 1),
    ("opened in", "opened_in_s", " s", 1),
)


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


def besides(case: Case, headline: str) -> list[str]:
    """What is told of a case beside its headline."""
    told = []
    for label, key, unit, places in _BESIDES:
        if key != headline and (values := case.values(key)):
            value = sum(values) if key == "lost" else Spread.of(values).median
            told.append(f"{label} {value:,.{places}f}{unit}")
    return told


def figure(spread: Spread) -> str:
    """A median with its spread."""
    digits = 0 if spread.median >= 100 else 1 if spread.median >= 10 else 2
    text = f"{spread.median:,.{digits}f}"
    if spread.low != spread.high:
        text += f" ({spread.low:,.{digits}f}-{spread.high:,.{digits}f})"
    return text


def _shown(case: Case, headline: str) -> str:
    spread = Spread.of(case.values(headline))
    text = f"{figure(spread):>24}"
    for words in besides(case, headline):
        text += f"  {words}"
    return text


def _judged(each: Ratio) -> str:
    spread = each.spread
    text = f"{each.over} : {each.under}, {each.key}  {spread.median:.2f}"
    if spread.low != spread.high:
        text += f"  ({spread.low:.2f}-{spread.high:.2f})"
    if each.target is not None:
        text += f"  aimed at {each.wants} {each.target:g}: {'met' if each.is_met else 'missed'}"
    return text
