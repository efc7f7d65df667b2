"""Opens sessions of devices and sensors, with the identity that the broker vouches for."""

from __future__ import annotations

from msgnode.core.identity import BROKER_ISSUER, Identity
from msgnode.sessions.frame_connection import ConnectionOpener

from .link import BrokerLink
from .session import BrokerConnection

SOURCE = "mqtt"
"""The text in place of a network address of devices behind the broker."""


def identity_of(name: str) -> Identity:
    """The identity for a user name of the broker: a device that the broker has authenticated."""
    subject = f"urn:device:{name}"
    return Identity(BROKER_ISSUER, subject, username=subject)


class BrokerSessions(ConnectionOpener):
    """Implements Opener. One instance per worker and kind of limits."""

    async def open(self, runtime_url: str, name: str, link: BrokerLink) -> BrokerConnection:
        """Open a session for a client of the broker. Raises NodeError."""
        connection = self._made(BrokerConnection, link, SOURCE)
        connection.set_identity(identity_of(name), "")
        await connection.begin_session(runtime_url)
        self._limits.add(connection, SOURCE)
        return connection

    def left(self, connection: BrokerConnection) -> None:
        """Count the connection of a client no longer."""
        self._uncount(connection, SOURCE)
