"""docs/reference holds every section and case that code and tests cite, and every case has a test.

A citation names the page: `docs/reference/messages.md, section 3.1`. Tests carry the numbers of
their cases in their names (`test_case_42_…`, `test_r22_…`, "R22 …" or "P2 P20 …" in JavaScript).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.node import ROOT

PAGES = ROOT / "docs" / "reference"
SOURCES = ("msgnode", "policies", "registry", "spark", "tests", "bench")
OWN = Path(__file__).resolve()

NOT_BY_NUMBER = {
    "46": "the bus of a runtime: R8",
    "47": "the bus of a runtime: an id that is given stays, tests/bus.test.mjs and test_buses.py",
    "48": "the bus of a runtime: R12",
    "49": "the resolver of a runtime: R22",
    "50": "the bus of a runtime: the tests of its retries",
}
"""Cases that no test has in its name, and what tests them."""

_HEADING = re.compile(r"^#{2,3} ([A-Z]?\d+(?:\.\d+)*|[A-Z])\.? ", re.MULTILINE)
_ROW = re.compile(r"^\| ([A-Z]?\d+) \|", re.MULTILINE)
_CITED = re.compile(
    r"docs/reference/(?P<page>\w+)\.md"
    r"(?P<what>(?:,? (?:and )?(?:section|case|row|item)s? [A-Z]?\d[\w.]*"
    r"(?:(?:-|, (?!section|case|row|item)| and (?!section|case|row|item))[A-Z]?\d[\w.]*)*)*)"
)
_PART = re.compile(r"(section|case|row|item)s? ((?:[A-Z]?\d[\w.]*(?:-|, | and )?)+)")
_STALE = re.compile(
    r"\b[Rr]eference \(?[A-Z]?\d|\b[Tt]able \d+, row|identity reference|registry reference"
)
_NUMBERED = re.compile(r"def test_cases?_((?:[pl]?\d+_(?:(?:and|to)_)?)+)")
_RUNTIME = re.compile(r"def test_((?:r\d+_)+)|\(\s?\"(R\d+) ")
_P2P = re.compile(r"\btest\(\s?\"((?:P\d+ )+)")

_TESTS = "msgnode/runtime/python/tests"
_SHARED = {
    "msgnode/runtime/js/tests/bus-cases.jsonl": f"{_TESTS}/test_buses.py",
    "msgnode/runtime/js/tests/p2p-cases.jsonl": f"{_TESTS}/test_p2p.py",
    "msgnode/runtime/js/tests/resolver-cases.jsonl": f"{_TESTS}/test_resolver.py",
    "msgnode/runtime/js/tests/syncher-cases.jsonl": f"{_TESTS}/syncher/test_cases.py",
    "tests/stubs/protostub-cases.jsonl": "tests/stubs/test_python_stub.py",
}
"""Cases that the tests of both runtimes play, and the test in Python."""

_OF_RUNTIMES = ("msgnode/runtime", "tests/runtime/", "tests/invitations/", "tests/stubs/")
_OF_NO_PAGE = ("tests/devices/", "tests/invitations/", "tests/legacy/", "tests/scripts/")
"""Whose cases are numbered by themselves: they are no cases of messages with the same number."""


class Citation(NamedTuple):
    file: str
    page: str
    kind: str
    number: str


@cache
def sections(page: str) -> frozenset[str]:
    """The numbers of a page's headings."""
    return frozenset(_HEADING.findall((PAGES / f"{page}.md").read_text(encoding="utf-8")))


@cache
def rows(page: str, *, cases: bool) -> frozenset[str]:
    """The numbers that begin the rows of tables: of cases, or of what is no case."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    chosen = [part for part in parts if _is_of_cases(part) == cases]
    return frozenset(number for part in chosen for number in _ROW.findall(part))


@cache
def files() -> tuple[tuple[str, str], ...]:
    """Our sources without the marks of comments, each run of white space as one space."""
    found = []
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".js", ".mjs", ".ts") and path != OWN:
                text = path.read_text(encoding="utf-8")
                text = re.sub(r"^\s*(?:#|\*|//)", " ", text, flags=re.MULTILINE)
                found.append((str(path.relative_to(ROOT)), re.sub(r"\s+", " ", text)))
    return tuple(found)


def citations() -> Iterator[Citation]:
    for file, text in files():
        for cited in _CITED.finditer(text):
            yield Citation(file, cited["page"], "page", "")
            for kind, numbers in _PART.findall(cited["what"]):
                for number in _spelled_out(numbers):
                    yield Citation(file, cited["page"], kind, number)


def test_every_citation_leads_to_something() -> None:
    wrong = []
    for file, page, kind, number in citations():
        if not (PAGES / f"{page}.md").is_file():
            wrong.append(f"{file}: there is no docs/reference/{page}.md")
        elif kind == "section" and number not in sections(page):
            wrong.append(f"{file}: {page}.md has no section {number}")
        elif kind == "case" and number not in rows(page, cases=True):
            wrong.append(f"{file}: {page}.md has no case {number}")
        elif kind == "row" and number not in rows(page, cases=False):
            wrong.append(f"{file}: {page}.md has no row {number}")
    assert wrong == []


def test_a_citation_names_its_page() -> None:
    stale = [f"{file}: {found[0]}" for file, text in files() for found in _STALE.finditer(text)]
    assert stale == []


def test_every_case_a_test_names_is_described() -> None:
    unknown = sorted(
        f"{file}: {page} {number}"
        for page, number, file in _named()
        if number not in rows(page, cases=True)
    )
    assert unknown == []


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_every_case_that_is_described_has_a_test(page: str) -> None:
    named = {number for found, number, _ in _named() if found == page}
    without = rows(page, cases=True) - named
    if page == "messages":
        assert not named & set(NOT_BY_NUMBER), "take it off the list"
        without -= set(NOT_BY_NUMBER)
    assert sorted(without) == []


def test_cases_of_p2p_are_shown_on_something_real_or_said_not_to_be() -> None:
    """A fake node or channel alone shows little."""
    text = (PAGES / "p2p.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"P\d+", text.partition("all but these")[2].partition("\n\n")[0]))
    files = {(number, file) for page, number, file in _named() if page == "p2p"}
    real = {number for number, file in files if not file.startswith("msgnode/runtime/")}
    assert {number for number, _ in files} - real == listed


@cache
def _named() -> tuple[tuple[str, str, str], ...]:
    """Page, number and file of each case a test has in its name."""
    return tuple(_each_named())


def _each_named() -> Iterator[tuple[str, str, str]]:
    for shared, test in _SHARED.items():
        for line in (ROOT / shared).read_text(encoding="utf-8").splitlines():
            for number in re.findall(r"\b[PR]\d+(?= )", json.loads(line)["name"]):
                page = "p2p" if number.startswith("P") else "runtime"
                yield page, number, shared
                yield page, number, test
    for file, text in files():
        for found in () if file.startswith(_OF_NO_PAGE) else _NUMBERED.finditer(text):
            for number in re.findall(r"[pl]?\d+", found[1]):
                plain = number.upper() if number[0] in "pl" else str(int(number))
                yield _page_of(file, plain), plain, file
        if file.startswith(_OF_RUNTIMES):
            for names, single in _RUNTIME.findall(text):
                for number in re.findall(r"r\d+", names) or [single]:
                    yield "runtime", number.upper(), file
            for names in _P2P.findall(text):
                for number in names.split():
                    yield "p2p", number, file


def _page_of(file: str, number: str) -> str:
    if number.startswith("P"):
        return "p2p"
    if file.startswith(("tests/registry/", "tests/connectors/", "tests/runtime/test_graph.py")):
        return "registry"
    if file.startswith("tests/qos/"):
        return "qos"
    if file.startswith("tests/federation/"):
        return "federation"
    return "identity" if int(number) > 70 else "messages"


def _is_of_cases(part: str) -> bool:
    heading = part.split("\n", 1)[0].lower()
    return "case" in heading


def _spelled_out(numbers: str) -> Iterator[str]:
    """`12-14 and 16` -> 12, 13, 14, 16."""
    for first, last in re.findall(r"([A-Z]?\d+(?:\.\d+)*)(?:-(\d+))?", numbers):
        if last:
            yield from (str(number) for number in range(int(first), int(last) + 1))
        else:
            yield first
