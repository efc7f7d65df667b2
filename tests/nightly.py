"""Which long tests are run at night alone: those of `tests/nightly.toml`.

Rules
- An entry names tests (files, functions, or some of their parameters as `cases`), says what they
  alone would catch, and names their twin: a test of every day that fails for the same fault.
- Nothing that lost data or let somebody in is found at night alone.
- What an entry names exists, and is marked `long`; its twin exists, and runs by day.

An entry marks its tests `nightly`. They run with all others where their file is run by itself.

A run of long tests alone does not read the files that have none: those that do not say `mark.long`
and have no conftest.py beside them that does. A run of short tests alone does not read those whose
`pytestmark` says it.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIST = "tests/nightly.toml"
UNUSED = pytest.StashKey[list[str]]()
"""What is listed of the files that were collected, and names no test there."""
ONLY_LONG = ("long", "nightly", "long and not nightly")
"""What `-m` says where only long tests are meant."""
ONLY_SHORT = "not long"

_KEYS = {"tests", "cases", "alone", "twin"}
_ALL_ARE_LONG = re.compile(r"^pytestmark = (\[[^\]]*)?pytest\.mark\.long\b", re.MULTILINE)


class Entry(NamedTuple):
    """Tests of the night."""

    tests: list[str]
    alone: str
    twin: str
    cases: tuple[str, ...] = ("*",)

    def has(self, nodeid: str, case: str) -> bool:
        """Whether it names a test, of which `case` are the parameters."""
        return any(_is_of(nodeid, test) for test in self.tests) and any(
            fnmatch.fnmatchcase(case, each) for each in self.cases
        )


def entries(path: Path) -> list[Entry]:
    """The entries of the list.

    Args:
        path: of the list, which may be missing.

    Raises:
        pytest.UsageError: An entry is not what it should be.
    """
    if not path.exists():
        return []
    try:
        return [_entry(each) for each in tomllib.loads(path.read_text(encoding="utf-8"))["nightly"]]
    except (tomllib.TOMLDecodeError, KeyError, ValueError) as error:
        raise pytest.UsageError(f"{path}: {error}") from None


def _entry(said: dict[str, Any]) -> Entry:
    if not _KEYS >= said.keys() >= _KEYS - {"cases"} or not all(said.values()):
        raise ValueError(f"an entry needs tests, alone and twin, and may have cases: {said}")
    return Entry(said["tests"], said["alone"], said["twin"], tuple(said.get("cases", ["*"])))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without long tests where only those are asked for, and the other way."""
    if collection_path.suffix != ".py":
        return None
    if config.option.markexpr in ONLY_LONG:
        return None if _may_be_long(collection_path) else True
    if config.option.markexpr == ONLY_SHORT:
        return True if _ALL_ARE_LONG.search(_text(collection_path)) else None
    return None


def _says_long(path: Path) -> bool:
    return "mark.long" in _text(path)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _may_be_long(path: Path) -> bool:
    return _says_long(path) or _says_long(path.with_name("conftest.py"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what the list names."""
    unused, twins = [], set()
    known = entries(config.rootpath / LIST)
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long") is not None and not _may_be_long(item.path):
            raise pytest.UsageError(f"{item.nodeid} is long, and its file does not say mark.long")
        by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    for entry in known:
        files = {test.partition("::")[0] for test in entry.tests}
        inside = [item for file in files for item in by_file.get(file, ())]
        named = [item for item in inside if entry.has(item.nodeid, _case(item))]
        for item in named:
            if item.get_closest_marker("long") is None:
                raise pytest.UsageError(f"{LIST}: {item.nodeid} is not long")
            item.add_marker("nightly")
        unused += [
            test
            for test in entry.tests
            if test.partition("::")[0] in by_file
            and not any(_is_of(item.nodeid, test) for item in named)
        ]
        twins.add(entry.twin)
    for twin in twins:
        here = [i for i in by_file.get(twin.partition("::")[0], ()) if _is_of(i.nodeid, twin)]
        if here and all(item.get_closest_marker("nightly") for item in here):
            raise pytest.UsageError(f"{LIST}: {twin} is a twin, and runs at night alone")
    config.stash[UNUSED] = unused


def _is_of(nodeid: str, name: str) -> bool:
    """Whether a name, of a file, a function or one of its parameters, is that of a test."""
    return nodeid == name or nodeid.startswith((f"{name}::", f"{name}[", f"{name}@"))


def _case(item: pytest.Item) -> str:
    call = getattr(item, "callspec", None)
    return str(call.id) if call is not None else ""
