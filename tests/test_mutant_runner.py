"""The runner of mutants: what is killed, what lives, what no test reaches, and what never ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mutmut")

from mutmut.mutation.file_mutation import mutate_file_contents

from tests.mutant_runner import KILLED, SURVIVED, TIMEOUT, UNREACHED

ROOT = Path(__file__).resolve().parents[1]
SOURCE = """
def added(one, other):
    return one + other


def counted(number):
    left = number
    while left > 0:
        left -= 1
    return number


def unused(one):
    return one - 1


def unseen(one):
    return one * 2
"""
TESTS = """
import pytest

import sums


@pytest.fixture(scope="session")
def two():
    yield 2
    with open("torn_down", "a") as file:
        file.write("x")


def test_a_sum(two):
    assert sums.added(1, two) == 3


def test_what_is_counted(two):
    assert sums.counted(two) == 2


def test_that_looks_at_nothing():
    sums.unseen(3)
"""
CONFTEST = """
from tests import mutant_runner

mutant_runner._LEAST, mutant_runner._MULTIPLE, mutant_runner._WALL = 0.1, 0.0, 600.0
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A module with its mutants, and tests of it."""
    made = mutate_file_contents("sums.py", SOURCE)
    (tmp_path / "sums.py").write_text(made.code)
    (tmp_path / "test_sums.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "names").write_text("\n".join(f"sums.{each}" for each in made.mutant_names))
    return tmp_path


def run(tree: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:django"]
    program += ["-p", "tests.mutant_runner", "--mutants=names", "--verdicts=verdicts"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        program, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=100
    )


def test_each_mutant_has_the_verdict_of_the_tests_that_reach_it(tree: Path) -> None:
    ended = run(tree)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, set[int]] = {}
    for line in (tree / "verdicts").read_text().splitlines():
        name, verdict = json.loads(line)
        found.setdefault(name.partition("__mutmut_")[0], set()).add(verdict)
    assert found["sums.x_added"] == {KILLED}
    assert found["sums.x_unused"] == {UNREACHED}
    assert found["sums.x_unseen"] == {SURVIVED}
    assert TIMEOUT in found["sums.x_counted"], "`left += 1` and `left = 1` never end"
    assert SURVIVED in found["sums.x_counted"], "`left > 1` is not noticed"
    assert len((tree / "torn_down").read_text()) > 3, "fixtures of a child end with it"
