"""Sessions that have yet to say who they are, where the mode asks for it: each has so many seconds.

The time is the same for all, so the first to enter is the first whose time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class IdentifyDeadlines:
    """One instance per worker. `seconds` 0: nobody is hurried."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._limits: dict[str, float] = {}  # session id -> when its time is over

    def enter(self, session_id: str) -> None:
        """The time of a session begins, unless it has begun already."""
        if self._seconds > 0:
            self._limits.setdefault(session_id, self._now() + self._seconds)

    def leave(self, session_id: str) -> None:
        """The session is identified, or not here any more."""
        self._limits.pop(session_id, None)

    def over(self) -> list[str]:
        """Take out those whose time is over."""
        now = self._now()
        ids = []
        for id_, limit in self._limits.items():
            if limit > now:
                break
            ids.append(id_)
        for id_ in ids:
            del self._limits[id_]
        return ids

    def __len__(self) -> int:
        return len(self._limits)
