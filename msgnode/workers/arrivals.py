"""What is looked at when a session has come to this worker, from another one or from its rows.

While it was on its way, or with a worker that had ended, its identity may have been revoked, it may
have been banned, and an operator may have ended it: this worker has heard of that before the
session was here.
"""

from __future__ import annotations

import time

from msgnode.core.faults import FAULTS
from msgnode.identity.service import IdentityService
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.session import LiveSession

from .orders import Orders


class Arrivals:
    """One instance per worker.

    Args:
        sessions: of this worker.
        identities: know what is revoked.
        orders: about sessions that were not here.
    """

    def __init__(
        self, sessions: SessionManager, identities: IdentityService, orders: Orders
    ) -> None:
        self._sessions = sessions
        self._identities = identities
        self._orders = orders

    def check(self, session: LiveSession) -> None:
        """End the session, or what it has, where that was decided while it was not here."""
        for look in (self._look_at_bans, self._identities.session_arrived, self._orders.carry_out):
            if not session.has_ended:
                with FAULTS.kept_to("session"):
                    look(session)

    def _look_at_bans(self, session: LiveSession) -> None:
        bans = self._sessions.bans
        ban = bans.of_session(session.runtime_url, session.speaker, time.time())
        if ban is not None:
            self._sessions.end(session, CloseCode.REFUSED, f"banned: {ban.reason}")
