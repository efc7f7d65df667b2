"""Opens connections without a socket, within the limits of their source."""

from __future__ import annotations

from typing import TypeVar

from msgnode.bus.pipeline import Pipeline
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.manager import SessionManager

from .answering_link import AnsweringLink
from .connection import FrameConnection

Made = TypeVar("Made", bound=FrameConnection)


class ConnectionOpener:
    """What those have in common that open sessions for others; one instance per worker.

    Args:
        pipeline: carries their frames.
        sessions: of this worker.
        limits: how many there may be.
        connection_settings: of each.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        sessions: SessionManager,
        limits: ConnectionLimits,
        connection_settings: ConnectionSettings,
    ) -> None:
        self._pipeline = pipeline
        self._sessions = sessions
        self._limits = limits
        self._settings = connection_settings

    def _made(self, kind: type[Made], link: AnsweringLink, source: str) -> Made:
        """A connection, not counted yet. Raises NodeError if there may not be one more."""
        self._limits.check(source)
        return kind(link, source, self._sessions, self._pipeline.carry, self._settings)

    def _uncount(self, connection: FrameConnection, source: str) -> None:
        if connection in self._limits.connections:
            self._limits.remove(connection, source)
