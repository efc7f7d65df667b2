"""A test that fails is run again alone: passes by chance are told, and nothing else is excused."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Callable

import pytest

from tests.node import ROOT
from tests.unsteady import LIST, listed

Run = Callable[..., pytest.RunResult]

STEADY = "def test_steady(): pass\n"
FAILS = "def test_fails(): assert 1 + 1 == 3, 'arithmetic'\n"
FAILS_ONCE = """
from pathlib import Path

def test_fails_once(tmp_path_factory):
    tries = Path("tries")
    tried = len(tries.read_text()) if tries.exists() else 0
    tries.write_text((tried + 1) * "x")
    assert tried in {passes}, "the server is late"
"""
UNSTEADY = FAILS_ONCE.replace("{passes}", "(1, 2)")
FAILS_TWICE = FAILS_ONCE.replace("{passes}", "(1,)")
NAME = "test_it.py::test_fails_once"
ENTRY = f'["{NAME}"]\nsince = 2026-01-31\nreason = "the port is taken"\n'


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider")
    (pytester.path / "tests").mkdir()

    def start(source: str, *words: str, known: str = "") -> pytest.RunResult:
        (pytester.path / LIST).write_text(known)
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_subprocess("-p", "tests.unsteady", *words)

    return start


def test_what_passes_twice_alone_does_not_fail_the_run_and_is_told(run: Run) -> None:
    result = run(STEADY + UNSTEADY, "-p", "xdist", "-n", "1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            f"*failed once, passed 2 times alone: {NAME}*",
            "*assert tried in (1, 2)*",
            f"UNSTEADY {NAME} (0.* s, alone *.* s, alone *.* s): *the server is late*",
            f'["{NAME}"]',
        ]
    )
    assert re.search("1 passed, 1 unsteady in ", result.outlines[-1])


def test_what_fails_again_each_time_or_the_second_time_fails_the_run(run: Run) -> None:
    late = UNSTEADY.replace("tries", "others").replace("once", "late")
    result = run(STEADY + FAILS + FAILS_TWICE + late)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for name in ("test_fails", "test_fails_once"):
        result.stdout.fnmatch_lines([f"FAILED AGAIN test_it.py::{name} *"])
    result.stdout.fnmatch_lines(["UNSTEADY *_fails_late *"])
    assert "2 failed, 1 passed, 1 unsteady in " in result.outlines[-1]


def test_what_is_on_the_list_fails_the_run_and_is_not_run_again(
    run: Run, pytester: pytest.Pytester
) -> None:
    result = run(UNSTEADY, known=ENTRY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED, and unsteady since 2026-01-31: the port is taken*late*"])
    assert (pytester.path / "tries").read_text() == "x"


def test_what_is_on_the_list_exists() -> None:
    entries = tomllib.loads((ROOT / LIST).read_text(encoding="utf-8"))
    assert listed(ROOT / LIST).keys() == entries.keys()
    for name in entries:
        file, _, function = name.partition("::")
        source = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function.rpartition('::')[2]}(" in source, f"{name} is gone: take it off"
    today = datetime.datetime.now(datetime.UTC).date()
    assert all(entry["since"] <= today for entry in entries.values())
