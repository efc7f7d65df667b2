"""What is run at night alone is named with its reason and its twin of every day."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly import LIST, UNUSED, entries
from tests.node import ROOT

TESTS = """
import pytest

@pytest.mark.long
@pytest.mark.parametrize("kind", ["one", "two"])
def test_long(kind): pass

@pytest.mark.long
def test_longest(): pass

def test_short(): pass
"""


@pytest.fixture
def chosen(pytester: pytest.Pytester) -> object:
    pytester.makeini("[pytest]\nmarkers =\n    long\n    nightly\naddopts = --strict-markers")
    pytester.makepyfile(test_it=TESTS)
    (pytester.path / "tests").mkdir()
    plugins = [word for name in ("randomly", "django", "asyncio") for word in ("-p", f"no:{name}")]

    def choose(listed: str, marks: str) -> pytest.RunResult:
        (pytester.path / LIST).write_text(listed)
        return pytester.runpytest_inprocess("-p", "tests.nightly", *plugins, "-v", "-m", marks)

    return choose


def entry(tests: str, cases: str = "", twin: str = "test_it.py::test_short") -> str:
    said = f'[[nightly]]\ntests = ["{tests}"]\nalone = "something"\ntwin = "{twin}"\n'
    return said + (f'cases = ["{cases}"]\n' if cases else "")


@pytest.mark.parametrize(
    ("listed", "by_day"),
    [
        ("nightly = []", 3),
        (entry("test_it.py::test_longest"), 2),
        (entry("test_it.py::test_long"), 1),
        (entry("test_it.py::test_long", "t*", "test_it.py::test_long[one]"), 2),
    ],
)
def test_what_is_listed_is_run_at_night_and_not_by_day(
    chosen: object, listed: str, by_day: int
) -> None:
    assert callable(chosen)
    day, night = chosen(listed, "long and not nightly"), chosen(listed, "nightly")
    day.assert_outcomes(passed=by_day, deselected=4 - by_day)
    night.assert_outcomes(passed=3 - by_day, deselected=1 + by_day)


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (entry("test_it.py::test_short"), "*test_short is not long*"),
        (entry("test_it.py::test_long", twin="test_it.py::test_long"), "*is a twin, and runs at*"),
        ('[[nightly]]\ntests = ["test_it.py"]\nalone = "x"', "*needs tests, alone and twin*"),
        (entry("test_it.py").replace("something", ""), "*needs tests, alone and twin*"),
    ],
)
def test_an_entry_that_breaks_a_rule_is_refused(chosen: object, listed: str, told: str) -> None:
    assert callable(chosen)
    result = chosen(listed, "nightly")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([told])


def test_a_long_test_whose_file_does_not_say_so_is_refused(
    chosen: object, pytester: pytest.Pytester
) -> None:
    assert callable(chosen)
    pytester.makepyfile(marks="import pytest\nslow = getattr(pytest.mark, 'long')")
    pytester.makepyfile(test_other="from marks import slow\n@slow\ndef test_other(): pass")
    pytester.syspathinsert()
    result = chosen("nightly = []", "not long")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_other is long, and its file does not say mark.long"])


def test_where_only_short_tests_are_meant_a_file_of_long_ones_is_not_read(
    chosen: object, pytester: pytest.Pytester
) -> None:
    assert callable(chosen)
    head, test = "import pytest", "def test_other(): pass\nassert False, 'it was read'"
    for name, mark in (("one", "pytest.mark.long"), ("all", "[\n    pytest.mark.long,\n]")):
        pytester.makepyfile(**{f"test_{name}": f"{head}\npytestmark = {mark}\n{test}"})
    chosen("nightly = []", "not long").assert_outcomes(passed=1, deselected=3)
    chosen("nightly = []", "long").assert_outcomes(errors=2)


def test_what_the_list_names_exists() -> None:
    for each in entries(ROOT / LIST):
        for test in (*each.tests, each.twin):
            file, _, function = test.partition("[")[0].partition("::")
            source = (ROOT / Path(file)).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in source, f"{LIST}: {test} is gone"


@pytest.mark.long  # where the files of long tests are read
def test_each_line_of_the_list_names_a_test(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.stash[UNUSED] == []
