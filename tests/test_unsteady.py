"""A test that fails is run again alone: passes by chance are told, and nothing else is excused."""

from __future__ import annotations

import datetime
import fnmatch
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node import ROOT
from tests.unsteady import LIST, MOST, listed

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


def test_the_printed_lines_can_be_added_to_the_list(run: Run, pytester: pytest.Pytester) -> None:
    unsteady = UNSTEADY.replace("the server is late", r"\"C:\\x\", late")
    lines = run(unsteady).outlines
    at = lines.index(f'["{NAME}"]')
    (pytester.path / LIST).write_text("\n".join(lines[at : at + 3]))
    said = listed(pytester.path / LIST)[NAME]
    assert r'"C:\x", late' in said


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


def test_what_is_skipped_the_second_time_has_not_passed(run: Run) -> None:
    skips = UNSTEADY.replace("    assert", "    if tried: __import__('pytest').skip()\n    assert")
    assert run(skips).ret == pytest.ExitCode.TESTS_FAILED


def test_a_failure_of_what_a_test_uses_is_looked_at_again_with_it(run: Run) -> None:
    uses = UNSTEADY.replace("def test_", "import pytest\n\n@pytest.fixture\ndef server_")
    result = run(f"{uses}\ndef test_uses(server_fails_once): pass\n")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["UNSTEADY test_it.py::test_uses *the server is late*"])


@pytest.mark.parametrize("word", ["-x", "--no-second-look", "--pdb"])
def test_who_asks_for_the_first_failure_gets_it(
    run: Run, pytester: pytest.Pytester, word: str
) -> None:
    assert run(UNSTEADY, word).ret != 0
    assert (pytester.path / "tries").read_text() == "x"


def test_if_many_fail_nothing_is_run_again(run: Run) -> None:
    many = f"@__import__('pytest').mark.parametrize('n', range({MOST + 1}))\n"
    result = run(many + "def test_fails(n): assert False")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"{MOST + 1} tests failed; more than {MOST} are not run again"])
    result.stdout.no_fnmatch_line("alone, *")


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ('["a"]\nsince = 2026-01-31\n', '*"a" needs since = <date> and reason = "…"*'),
        ('["a"]\nsince = "soon"\nreason = "b"\n', '*"a" needs since = <date>*'),
        ('a = "b"\n', '*"a" needs since = <date>*'),
        ("nonsense\n", "*unsteady.toml: *"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path, known: str, told: str) -> None:
    (tmp_path / "unsteady.toml").write_text(known)
    with pytest.raises(pytest.UsageError) as refused:
        listed(tmp_path / "unsteady.toml")
    assert fnmatch.fnmatch(str(refused.value), told)


def test_what_is_on_the_list_exists() -> None:
    entries = tomllib.loads((ROOT / LIST).read_text(encoding="utf-8"))
    assert listed(ROOT / LIST).keys() == entries.keys()
    for name in entries:
        file, _, function = name.partition("::")
        source = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function.rpartition('::')[2]}(" in source, f"{name} is gone: take it off"
    today = datetime.datetime.now(datetime.UTC).date()
    assert all(entry["since"] <= today for entry in entries.values())
