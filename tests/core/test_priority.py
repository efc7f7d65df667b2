"""A process that is to yield the processor does so towards other sessions, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from msgnode.core.priority import lower_priority
from tests.waiting import until

GROUPS = Path("/proc/self/autogroup")
STARTS_ANOTHER = (
    "import subprocess, sys; subprocess.Popen(['sleep', '60']); print(flush=True); input()"
)


def niceness_of_session(pid: int) -> int:
    """As the kernel shows it: `/autogroup-7 nice 10`."""
    return int(Path(f"/proc/{pid}/autogroup").read_text().rpartition(" ")[2])


def test_what_a_process_has_started_before_yields_too() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS_ANOTHER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        until(lambda: lower_priority(process.pid, 7), 10)
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        for pid in (process.pid, child):
            assert os.getpriority(os.PRIO_PROCESS, pid) == max(own, 7)
            if GROUPS.exists():
                assert niceness_of_session(pid) == max(own, 7)
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def test_a_process_that_has_ended_is_not_asked_again() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    process.wait()
    assert lower_priority(process.pid, 7)
