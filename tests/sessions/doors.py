"""The handshake of a worker, where nobody is refused for who they are."""

from __future__ import annotations

from typing import Any

from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import no_name_barrier
from msgnode.sessions.admission import Known
from msgnode.sessions.handshake import RuntimeChecks, SessionHandshake, SessionLocator
from msgnode.sessions.liveness import LivenessChecks
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rivals import Findable, Rivals
from msgnode.sessions.session_factory import SessionSettings


def handshake(
    settings: SessionSettings,
    sessions: SessionManager,
    table: RoutingTable,
    store: Any,
    locator: SessionLocator | None = None,
    findable: Findable = no_name_barrier,
) -> SessionHandshake:
    """A handshake that checks sockets within a minute."""
    locator = locator or SessionLocator(sessions, table)
    return SessionHandshake(
        settings,
        sessions,
        store,
        Known(settings, table, LastOwnerCache(), sessions.sessions),
        locator,
        LivenessChecks(sessions, seconds=60),
        Rivals(table, locator.ask_others, settings.shares, findable),
        RuntimeChecks(lambda *_: None),
    )
