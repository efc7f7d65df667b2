"""Whole workers, simulated: what has failed once, and some kinds of fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FIRST, LAST = 6, 10
"""A worker freezes, is killed, or is cut off Redis, both ways or one; Redis comes back empty. A run
takes a second of the processor, so `make simulate` has the others."""


@pytest.mark.timeout(600)
def test_workers_keep_their_promises_whatever_is_broken(template: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", str(FIRST), str(LAST), "--single", "--kept",
         "--database", template],
        capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
