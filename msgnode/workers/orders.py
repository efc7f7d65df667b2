"""Operators' orders about sessions that this worker does not have, kept in case they move here.

Each worker reads an order at a different time. While a session moves, the old worker may read the
order after the session has left, and the new one before it has arrived; the new one then carries it
out on arrival. An order is kept for some minutes, longer than any move takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from msgnode.sessions.session import LiveSession

CarryOut = Callable[[LiveSession], None]

_KEPT = 300.0  # seconds
_MOST = 50_000


class Orders:
    """One instance per worker."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._of: OrderedDict[str, list[CarryOut]] = OrderedDict()  # by session, oldest first
        self._since: dict[str, float] = {}  # the newest order of a session
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def keep(self, session_id: str, carry_out: CarryOut) -> None:
        """Carry it out on the session if that comes to this worker."""
        self._of.setdefault(session_id, []).append(carry_out)
        self._of.move_to_end(session_id)
        self._since[session_id] = self._now()
        self._number += 1
        self._forget_old()

    def carry_out(self, session: LiveSession) -> None:
        """A session has come: do what was ordered while it was not here."""
        self._forget_old()
        for carry_out in self._take(session.id):
            if not session.has_ended:
                carry_out(session)

    def _take(self, session_id: str) -> list[CarryOut]:
        orders = self._of.pop(session_id, [])
        self._since.pop(session_id, None)
        self._number -= len(orders)
        return orders

    def _forget_old(self) -> None:
        old = self._now() - _KEPT
        while self._of:
            first = next(iter(self._of))
            if self._since[first] > old and self._number <= _MOST:
                return
            self._take(first)
