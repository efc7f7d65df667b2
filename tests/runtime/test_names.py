"""The names by which both runtimes count what goes wrong: docs/runtime.md, section Counters."""

from __future__ import annotations

import re
from pathlib import Path

from tests.node import ROOT

NAME = r"([a-z0-9]+(?:[.-][a-z0-9]+)*)"
JAVASCRIPT = re.compile(rf"(?:report|count)\(\s*[\"`]{NAME}")
PYTHON = re.compile(rf"(?:report\(|counters\[|_count\(|\.count\()\s*f?\"{NAME}")
IN_CONDITION = re.compile(r"count\(code === 403 \? \"([a-z.]+)\" : \"([a-z.]+)\"")


def names_in(folder: Path, suffix: str, pattern: re.Pattern[str]) -> set[str]:
    found: set[str] = set()
    for path in folder.rglob(f"*{suffix}"):
        parts = path.relative_to(folder).parts
        if "tests" in parts or "vendor" in parts or "policies" in parts:
            continue
        text = path.read_text(encoding="utf-8")
        found.update(pattern.findall(text))
        for pair in IN_CONDITION.findall(text):
            found.update(pair)
    return {each for each in found if "." in each or each == "blocked"}


def told() -> dict[str, str]:
    """By name, in which runtimes it is: "both", "JavaScript" or "Python"."""
    page = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    section = page.split("## Counters", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([^`]+)` \| (both|JavaScript|Python) \|", section, re.MULTILINE)
    return {name.replace("<code>", "404"): where for name, where in rows}


def test_counters_are_called_as_the_page_says_and_alike_in_both_runtimes() -> None:
    runtime = ROOT / "msgnode" / "runtime"
    said = {
        "JavaScript": names_in(runtime / "js" / "src", ".js", JAVASCRIPT),
        "Python": names_in(runtime / "python", ".py", PYTHON),
    }
    expected = {
        kind: {name for name, where in told().items() if where in (kind, "both")} for kind in said
    }
    for kind, names in said.items():
        plain = {each for each in names if not each.startswith("undeliverable")}
        wanted = {each for each in expected[kind] if not each.startswith("undeliverable")}
        assert plain == wanted, kind
    assert any(each.startswith("undeliverable") for each in expected["Python"])
