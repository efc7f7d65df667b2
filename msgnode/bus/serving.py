"""The worker's lease as the bus sees it: until when the worker may serve, and by which clock."""

from __future__ import annotations

import time
from typing import Protocol

LEASE_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that keeps running while the process is stopped or the machine sleeps."""
LEAST_LEASE = 3.0
"""The shortest lease, in seconds: in a third of it the database has to renew it, even if a commit
takes long, and a worker that was asked for an address has to answer within it."""


class ServingLease(Protocol):
    """The lease of a worker.

    until  time of LEASE_CLOCK until which the worker may serve without calling `check`; in the past
           once the lease is lost
    """

    until: float

    def check(self) -> None:
        """Raise Pending while it is not certain that the lease is held."""
        ...


class _Always:
    """The lease of a node with one worker, which is always held."""

    until = float("inf")

    def check(self) -> None:
        """Do nothing."""


ALWAYS: ServingLease = _Always()
