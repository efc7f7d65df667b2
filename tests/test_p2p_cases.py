"""docs/reference/p2p.md, section 8: where each case is shown, as the tests' names and files say."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.node import ROOT
from tests.test_reference import _NUMBERED, PAGES, _named, rows

HEADS = ("JavaScript", "Python", "node", "aiortc", "Chromium", "Chromium and aiortc", "Node.js")
FOLDERS = {
    "msgnode/runtime/js/": "JavaScript",
    "msgnode/runtime/python/": "Python",
    "tests/conformance/": "node",
    "tests/e2e/": "node",
    "tests/ownership/": "node",
    "tests/sessions/": "node",
    "tests/runtime/test_p2p_in_nodejs.py": "Node.js",
    "tests/runtime/": "aiortc",
}
"""What the tests of a folder run on; those of browsers are looked at one by one."""
BROWSERS = re.compile(r"tests/runtime/test_p2p_(\w*in_chromium|of_the_catalogue|on_the_page)\.py")
BOTH = {"PAIRS", "kinds"}
"""Names by which a test takes all pairs of runtimes."""


def shown() -> dict[str, set[str]]:
    """By the number of a case, what it is shown on."""
    found: dict[str, set[str]] = defaultdict(set)
    for page, number, file in _named():
        if page != "p2p":
            continue
        if BROWSERS.fullmatch(file):
            found[number] |= _in_browsers(file, number)
        else:
            found[number].add(next(FOLDERS[each] for each in FOLDERS if file.startswith(each)))
    return found


def _in_browsers(file: str, number: str) -> set[str]:
    """Which runtimes the tests of a case in a file of browsers bring together."""
    found = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.FunctionDef) or number not in _numbers(node.name):
            continue
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        said = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
        if names & BOTH or said.count("chromium") > 1 or "glare" in ast.unparse(node):
            found.add("Chromium")
        if names & BOTH or "python" in said or "field" in file:
            found.add("Chromium and aiortc")
    assert found, f"{file}: {number} names no runtime"
    return found


def _numbers(name: str) -> set[str]:
    """The cases in a test's name; "p31_to_p33" are three."""
    match = _NUMBERED.match(f"def {name}")
    if match is None or "p" not in match[1]:
        return set()
    return {each.upper() for each in re.findall(r"p\d+", match[1])}


def _table() -> list[str]:
    found = shown()
    numbers = sorted(rows("p2p", cases=True), key=lambda number: int(number[1:]))
    return [
        f"| {number} | {' | '.join('✓' if head in found[number] else '' for head in HEADS)} |"
        for number in numbers
    ]


def test_the_table_says_where_each_case_is_shown() -> None:
    part = (PAGES / "p2p.md").read_text(encoding="utf-8").split("\n## 8. ")[1]
    told = [line for line in part.splitlines() if line.startswith("| P")]
    assert told == _table(), "\n" + "\n".join(_table())


def test_every_case_is_shown_on_something_real() -> None:
    """A fake node or channel alone shows little; the exceptions are said to be ones."""
    text = (PAGES / "p2p.md").read_text(encoding="utf-8")
    listed = text.partition("Only over a fake channel:")[2].partition("\n\n")[0]
    excepted = set(re.findall(r"P\d+", listed))
    real = set(HEADS) - {"JavaScript", "Python"}
    unreal = {number for number, places in shown().items() if not places & real}
    assert unreal == excepted


def test_a_case_of_browsers_is_known_by_the_runtimes_it_starts() -> None:
    file = "tests/runtime/test_p2p_in_chromium.py"
    assert _in_browsers(file, "P60") == {"Chromium", "Chromium and aiortc"}
    assert _in_browsers(file, "P56") == {"Chromium"}
    assert _in_browsers(file, "P61") == {"Chromium and aiortc"}
    assert _in_browsers(file, "P26") == {"Chromium"}
