"""Operators' orders about sessions that this worker does not have, kept in case they move here.

Each worker reads an order at a different time. While a session moves, the old worker may read the
order after the session has left, and the new one before it has arrived; the new one then carries it
out on arrival. An order is kept for some minutes, longer than any move takes.

An order is carried out once. Its runtime may have undone it since, as it may: what was taken from
it, it may have asked for again. So a session says which orders it has met already, and an order
that its rows show is not carried out on a session that was made from them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import monotonic

from msgnode.core.faults import FAULTS
from msgnode.identity.service import IdentityService
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.session import LiveSession
from msgnode.storage import control

_KEPT = 300.0  # seconds
_MOST = 50_000
_NOTED = 1_000  # orders that a session says it has met, the newest
_AT_ONCE = 500  # sessions that are named in one row

MISSED = "sessions.missed"
"""Kind of the message by which a worker names the sessions of others that miss something it had
taken for them, if it cannot say so to their workers: they have ended, or it ends itself."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order about a session.

    Attributes:
        number: the number of its row, the same at every worker; 0 for none.
        do: carries it out.
        is_in_rows: whether the rows of what the session holds certainly show it, too.
    """

    number: int
    do: Callable[[LiveSession], None]
    is_in_rows: bool = False

    def carry_out(self, session: LiveSession) -> None:
        """Carry it out on a session of this worker, unless that was done."""
        if self.number and self.number in session.orders:
            return
        self.do(session)
        if self.number:
            session.orders = (*session.orders, self.number)[-_NOTED:]


class Orders:
    """One instance per worker."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._of: OrderedDict[str, list[tuple[float, Order]]] = OrderedDict()  # oldest first
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def keep(self, session_id: str, order: Order) -> None:
        """Carry it out on the session if that comes to this worker."""
        self._of.setdefault(session_id, []).append((self._now(), order))
        self._of.move_to_end(session_id)
        self._number += 1
        self._forget_old()

    def carry_out(self, session: LiveSession, rows_read_at: float | None = None) -> None:
        """A session has come: do what was ordered while it was not here.

        Args:
            session: the session.
            rows_read_at: when its rows were read, if it was made from them.
        """
        self._forget_old()
        for kept_at, order in self._take(session.id):
            is_shown = order.is_in_rows and rows_read_at is not None and kept_at < rows_read_at
            if not is_shown and not session.has_ended:
                with FAULTS.kept_to("session"):
                    order.carry_out(session)

    def _take(self, session_id: str) -> list[tuple[float, Order]]:
        orders = self._of.pop(session_id, [])
        self._number -= len(orders)
        return orders

    def _forget_old(self) -> None:
        old = self._now() - _KEPT
        while self._of:
            first, orders = next(iter(self._of.items()))
            newest, _ = orders[-1]
            if newest > old and self._number <= _MOST:
                return
            self._take(first)


class ArrivalChecks:
    """Checks a session that has arrived at this worker, from another worker or from its rows.

    While it was moving, or its worker was dead, its identity may have been revoked, it may have
    been banned, or an operator may have ended it. This worker was told of that before it had the
    session. One instance per worker.

    Args:
        sessions: the sessions of this worker.
        identities: knows which identities are revoked.
        orders: the orders about sessions that were not at this worker.
    """

    def __init__(
        self, sessions: SessionManager, identities: IdentityService, orders: Orders
    ) -> None:
        self._sessions = sessions
        self._identities = identities
        self._orders = orders

    def check(self, session: LiveSession, rows_read_at: float | None = None) -> None:
        """Apply what was decided about the session while it was not at this worker.

        Args:
            session: the session.
            rows_read_at: when its rows were read, on the clock of `Orders`, if it comes from them.
        """
        orders = partial(self._orders.carry_out, rows_read_at=rows_read_at)
        for look in (self._look_at_bans, self._identities.session_arrived, orders):
            if not session.has_ended:
                with FAULTS.kept_to("session"):
                    look(session)

    def _look_at_bans(self, session: LiveSession) -> None:
        bans = self._sessions.bans
        ban = bans.of_session(session.runtime_url, session.speaker, time.time())
        if ban is not None:
            self._sessions.end(session, CloseCode.REFUSED, f"banned: {ban.reason}")


def post_missed(missed: Iterable[str]) -> None:
    """Have sessions told that they miss something, at whichever worker they are. Blocks."""
    sessions = sorted(missed)
    for start in range(0, len(sessions), _AT_ONCE):
        control.post(MISSED, sessions=sessions[start : start + _AT_ONCE])
