"""Ends sessions of which the database has other addresses or subscriptions than they were told.

That is so if it committed a change after the node had refused it, because the database did not
answer in time (storage/writer.py). The runtime opens a new session and asks again.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgnode.core.faults import FAULTS

from .manager import SessionManager
from .rules import CloseCode

REASON = "changes were committed after they had been refused"


def end_differing(sessions: SessionManager, ids: Iterable[str]) -> None:
    """End these sessions, as far as they are here."""
    for id_ in ids:
        session = sessions.sessions.get(id_)
        if session is not None:
            with FAULTS.kept_to("session"):
                sessions.end(session, CloseCode.GOING_AWAY, REASON, REASON)
