"""Ports that tests give to servers: no two processes give the same, of whichever test run."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

from tests.node import ROOT

GIVE = """
import sys
from tests import ports
ports.PORTS = range(25_000, 25_040)  # so few that two would soon give the same by chance
for _ in range(10):
    print(ports.free_port(), flush=True)
sys.stdin.read()
"""


def test_two_test_runs_at_the_same_time_are_given_different_ports() -> None:
    with ExitStack() as stack:
        runs = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", GIVE],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(3)
        ]
        given = [int(each.stdout.readline()) for each in runs if each.stdout for _ in range(10)]
        for each in runs:
            assert each.stdin is not None
            each.stdin.close()
    assert len(set(given)) == 30
