"""Opens the sessions of those behind the broker, as who the broker says they are."""

from __future__ import annotations

from msgnode.bus.pipeline import Pipeline
from msgnode.core.identity import BROKER_ISSUER, Identity
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.manager import SessionManager

from .link import BrokerLink
from .session import BrokerConnection

SOURCE = "mqtt"
"""Stands for the network address of all who are behind the broker."""


def identity_of(name: str) -> Identity:
    """Who a name of the broker is: a device, which the broker has authenticated."""
    subject = f"urn:device:{name}"
    return Identity(BROKER_ISSUER, subject, username=subject)


class BrokerSessions:
    """Implements Opener. One instance per worker and kind of limits."""

    def __init__(
        self,
        pipeline: Pipeline,
        sessions: SessionManager,
        sockets: ConnectionLimits,
        connection_settings: ConnectionSettings,
    ) -> None:
        self._pipeline = pipeline
        self._sessions = sessions
        self._sockets = sockets
        self._settings = connection_settings

    async def open(self, runtime_url: str, name: str, link: BrokerLink) -> BrokerConnection:
        """Open a session for a client of the broker. Raises NodeError."""
        self._sockets.check(SOURCE)
        connection = BrokerConnection(
            link, SOURCE, self._sessions, self._pipeline.carry, self._settings
        )
        connection.set_identity(identity_of(name), "")
        await connection.begin_session(runtime_url)
        self._sockets.add(connection, SOURCE)
        return connection

    def left(self, connection: BrokerConnection) -> None:
        """Count the connection of a client no longer."""
        if connection in self._sockets.connections:
            self._sockets.remove(connection, SOURCE)
