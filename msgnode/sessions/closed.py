"""Chooses which rows of closed sessions a worker keeps: the newest, per source and in total.

Sessions closed before the worker's start are left to the purge (msgnode.tasks).
"""

from __future__ import annotations

from collections import OrderedDict

from msgnode.core.rates import source_of

SHARE_OF_A_SOURCE = 0.1
"""Of all rows: one source cannot have the rows of the others deleted."""


class ClosedSessions:
    """One instance per worker."""

    def __init__(self, per_source: float, total: float) -> None:
        self._per_source = per_source
        self._total = total
        self._sources: OrderedDict[str, str] = OrderedDict()  # oldest first
        self._of: dict[str, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, session_id: str, address: str) -> list[str]:
        """Note a closed session; return the ids of the sessions whose rows can be deleted."""
        source = source_of(address)
        self._sources[session_id] = source
        mine = self._of.setdefault(source, OrderedDict())
        mine[session_id] = None
        gone: list[str] = []
        if len(mine) > self._per_source:
            gone.append(self._forget(next(iter(mine))))
        if len(self._sources) > self._total:
            gone.append(self._forget(next(iter(self._sources))))
        return gone

    def _forget(self, session_id: str) -> str:
        source = self._sources.pop(session_id)
        mine = self._of[source]
        del mine[session_id]
        if not mine:
            del self._of[source]
        return session_id
