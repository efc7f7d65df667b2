"""The other workers according to the database: registered ones, and dead ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


class OtherWorkers:
    """One instance per worker; whoever reads the database keeps it up to date.

    Attributes:
        registered: the epochs of the registered workers.
        ready: those of them that accept sessions.
        dead: workers that have ended and whose sessions are being taken over.
    """

    def __init__(self, own_epoch: str, others: Collection[str]) -> None:
        self.registered: set[str] = set()
        self.ready: set[str] = set()
        self.dead: set[str] = set()
        self._own_epoch = own_epoch
        self._others = others  # known at the moment

    def is_retired(self, epoch: str) -> bool:
        """Whether a worker has ended and its sessions were taken over."""
        # One that comes is heard of before it takes sessions.
        return not (
            epoch == self._own_epoch
            or epoch in self._others
            or epoch in self.registered
            or epoch in self.dead
        )

    def is_dead(self, epoch: str) -> bool:
        """Whether a worker has ended and its sessions are being taken over."""
        return epoch in self.dead


class LeaseWatch:
    """Finds leases not renewed for `seconds` while this worker could renew its own."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[str, tuple[Any, float]] = {}  # epoch -> the end of its lease, since when
        self._failed = 0

    def overdue(self, leases: Mapping[str, Any], moment: float, failed: int) -> list[str]:
        """The epochs of those leases.

        Args: leases: the end of each lease by epoch, as the database has it now. moment: now.
            failed: how often this worker could not renew its own lease; after another failure the
            watch starts anew, because the others may have had the same problem.
        """
        if failed != self._failed:
            self._failed = failed
            self._seen.clear()
        seen = self._seen
        self._seen = {
            epoch: seen[epoch] if epoch in seen and seen[epoch][0] == until else (until, moment)
            for epoch, until in leases.items()
        }
        return [epoch for epoch, (_, at) in self._seen.items() if moment - at > self._seconds]
