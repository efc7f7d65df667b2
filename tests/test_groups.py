"""Tests of a group share a process, whatever the versions of pytest and pytest-xdist agree on."""

from __future__ import annotations

import pytest

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
