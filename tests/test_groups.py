"""What tests share is started in one process, whatever pytest and xdist agree on, and in time."""

from __future__ import annotations

import pytest

from tests.groups import put_dear_files_first
from tests.node import ROOT

GROUPED = """
import os
import pytest

@pytest.mark.xdist_group("group")
@pytest.mark.parametrize("number", range(12))
def test_one_of_the_group(number, request):
    with open(request.config.rootpath / "processes", "a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " ")
"""

SLOW_TO_START = """
import threading
import pytest

@pytest.fixture(scope="session")
def shared():
    threading.Event().wait(1.5)

@pytest.fixture
def own(shared):
    pass

def test_the_first(own):
    pass

def test_that_hangs(own):
    threading.Event().wait(60)
"""


def test_what_is_shared_takes_nothing_of_the_time_of_the_first_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(SLOW_TO_START)
    plugins = ("-p", "pytest_timeout", "-p", "tests.groups", "-p", "no:cacheprovider")
    done = pytester.runpytest_subprocess("--timeout", "1", *plugins)
    done.assert_outcomes(passed=1, failed=1)


def test_a_group_runs_in_one_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # three processes would load them all
    pytester.makepyfile(GROUPED)
    plugins = ("-p", "xdist", "-p", "tests.groups", "-p", "no:cacheprovider")
    options = ("-n", "2", "--dist", "loadgroup")
    pytester.runpytest_subprocess(*options, *plugins).assert_outcomes(passed=12)
    processes = (pytester.path / "processes").read_text().split()
    assert len(processes) == 12
    assert len(set(processes)) == 1


def test_files_whose_tests_may_take_long_come_first(pytester: pytest.Pytester) -> None:
    test, dear = "import pytest\ndef test_it(): pass\n", "@pytest.mark.timeout(5)\n"
    pytester.makepyfile(test_one=test, test_two=f"{test}{dear}def test_dear(): pass", test_x=test)
    items, _ = pytester.inline_genitems("-p", "no:randomly", "-p", "no:asyncio")
    put_dear_files_first(items)
    found = [(each.path.stem, each.name) for each in items]
    assert found == [
        ("test_two", "test_it"), ("test_two", "test_dear"), ("test_one", "test_it"),
        ("test_x", "test_it"),
    ]  # fmt: skip
