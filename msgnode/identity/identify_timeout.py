"""Ends sessions that do not identify themselves in time, where the mode requires it.

The time limit is the same for all, so sessions expire in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from msgnode.bus.ports import Listener
from msgnode.core.faults import FAULTS
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import CloseCode


class IdentifyDeadlines:
    """The deadlines of a worker's sessions. `seconds` 0: there are none."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._limits: dict[str, float] = {}  # session id -> when its time is over

    def enter(self, session_id: str) -> None:
        """Begin a session's time, unless it has begun."""
        if self._seconds > 0:
            self._limits.setdefault(session_id, self._now() + self._seconds)

    def leave(self, session_id: str) -> None:
        """Remove a session that is identified or has left."""
        self._limits.pop(session_id, None)

    def over(self) -> list[str]:
        """Remove and return the sessions whose time is over."""
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


class IdentifyTimeout:
    """Ends the sessions of a worker that do not identify themselves in time.

    Args:
        sessions: the worker's sessions.
        seconds: the time limit; 0 for none.
    """

    def __init__(self, sessions: SessionManager, seconds: float) -> None:
        self.deadlines = IdentifyDeadlines(seconds)
        self._sessions = sessions

    def said_who(self, session: Listener) -> None:
        """Note that a session may speak without a login: it sent an identity, or is a guest."""
        live = self._sessions.sessions.get(session.id)
        if live is not None:
            self._sessions.said_who(live)
            self.deadlines.leave(session.id)

    def look(self) -> None:
        """End sessions whose time is over. Call this every second."""
        for id_ in self.deadlines.over():
            session = self._sessions.sessions.get(id_)
            if session is not None:
                text = "not identified in time"
                with FAULTS.kept_to("session"):
                    self._sessions.end(session, CloseCode.NOT_IDENTIFIED, text, text)
