"""The process of a run stands back where others want the processor, and so does all it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from spark import process

SAYS = "import os, subprocess, sys; subprocess.run(['nice'], stdout=open(sys.argv[1], 'w'))"


def test_a_run_and_what_it_starts_have_the_niceness_of_the_settings(tmp_path: Path) -> None:
    told = tmp_path / "niceness"
    process.run(
        [sys.executable, "-c", SAYS, str(told)], os.environ, tmp_path / "log",
        time_limit=60.0, niceness=7, watch=lambda *_: True,
    )  # fmt: skip
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert int(told.read_text()) == max(own, 7)
