"""The priority of a process that was started in a session of its own.

Linux shares the processor among sessions first (autogroups): the niceness of a process alone counts
only within its session, so that of the session is set with it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def lower_priority(pid: int, niceness: int) -> bool:
    """Let a process, and what it starts, yield the processor to all others.

    Args:
        pid: the process, which leads a session and its only group.
        niceness: 0 to 19; one that is higher already stays.

    Returns:
        False if the kernel took another such change within the last 0.1 s: to be called again.
    """
    with suppress(ProcessLookupError):
        niceness = max(niceness, os.getpriority(os.PRIO_PGRP, pid))
        os.setpriority(os.PRIO_PGRP, pid, niceness)
    try:
        (_PROC / str(pid) / "autogroup").write_text(str(niceness))
    except OSError as error:  # also: has ended, no Linux, no autogroups
        return error.errno != errno.EAGAIN
    return True
