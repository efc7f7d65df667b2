"""The other workers by the database: which there are, and which have ended."""

from __future__ import annotations

from collections.abc import Collection


class OtherWorkers:
    """One instance per worker, by epochs; who looks for them keeps it up to date.

    Attributes:
        registered: those of others, by the database.
        ready: those of them that take sessions.
        dead: those that have ended and what they had is being taken.
    """

    def __init__(self, own_epoch: str, peers: Collection[str]) -> None:
        self.registered: set[str] = set()
        self.ready: set[str] = set()
        self.dead: set[str] = set()
        self._own_epoch = own_epoch
        self._peers = peers  # known at the moment

    def is_retired(self, epoch: str) -> bool:
        """Whether a worker has ended and what it had was taken."""
        # One that comes is known as a peer before it takes sessions.
        return not (
            epoch == self._own_epoch
            or epoch in self._peers
            or epoch in self.registered
            or epoch in self.dead
        )

    def is_dead(self, epoch: str) -> bool:
        """Whether a worker has ended and what it had is being taken."""
        return epoch in self.dead
