"""Checks a session that has arrived at this worker, from another worker or from its rows.

While it was moving, or its worker was dead, its identity may have been revoked, it may have been
banned, or an operator may have ended it. This worker was told of that before it had the session.
"""

from __future__ import annotations

import time
from functools import partial

from msgnode.core.faults import FAULTS
from msgnode.identity.service import IdentityService
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.session import LiveSession

from .orders import Orders


class Arrivals:
    """One instance per worker.

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
