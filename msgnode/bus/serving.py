"""Whether a worker may serve, as the bus asks: until when, and on which clock."""

from __future__ import annotations

import time
from typing import Protocol

LEASE_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the process is stopped or the machine sleeps."""


class ServingLease(Protocol):
    """The lease of a worker.

    until  seconds of LEASE_CLOCK up to which the worker may serve without asking; of a lease that
           is lost there are none
    """

    until: float

    def check(self) -> None:
        """Raises Pending while it is not certain that the lease is held."""
        ...


class _Always:
    """The lease of a node that nobody else can take over from."""

    until = float("inf")

    def check(self) -> None:
        """It is held."""


ALWAYS: ServingLease = _Always()
