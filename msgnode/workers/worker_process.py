"""Identifies the process of a worker, and finds out whether it still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TIMES_FENCED = "--times-fenced="
"""The argument that tells a restarted process how often it was fenced."""


@dataclass(frozen=True, slots=True)
class WorkerId:
    """The identity of a worker: its name, its epoch and its process."""

    name: str
    epoch: str
    host: str
    pid: int


def this_host() -> str:
    """A name unique to this machine, and to a container with process ids of its own."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    marks = [boot.read_text().strip()[:13]] if boot.exists() else []
    marks += [namespace.readlink().name] if namespace.is_symlink() else []
    return "/".join([socket.gethostname(), *marks])[:255]


def has_ended(me: WorkerId, host: str, pid: int) -> bool:
    """Whether a worker's process has certainly ended.

    It ran on this machine and no longer exists, or it was an earlier life of this very process.
    """
    return host == me.host and (pid == me.pid or not runs(pid))


def runs(pid: int) -> bool:
    """Whether a process of this machine is there and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


def times_fenced(arguments: Sequence[str]) -> int:
    """How often this process has restarted because it had lost its lease.

    Args:
        arguments: the process's own arguments, in which it counts its restarts.
    """
    told = [each.removeprefix(TIMES_FENCED) for each in arguments if each.startswith(TIMES_FENCED)]
    return int(told[0]) if told and told[0].isdigit() else 0
