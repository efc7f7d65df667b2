"""The memory of a run is that of all its processes."""

from __future__ import annotations

import os
import subprocess
import sys

from spark.job_main import Peak, family

HOLDS_100_MB = "held = b'x' * 100_000_000; print('holds', flush=True); input()"


def test_a_process_that_was_started_and_has_ended_counts() -> None:
    before = Peak().mb()
    peak = Peak()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_100_MB],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "holds\n"
        assert child.pid in family(os.getpid())
        held = peak.mb()
        child.communicate("\n")
    assert child.pid not in family(os.getpid())
    assert held >= before + 95
    assert peak.mb() == held
