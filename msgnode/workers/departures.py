"""Turns a session of this worker into one of another, which it was handed to or which took it."""

from __future__ import annotations

from collections.abc import Callable

from .announcements import Announcements
from .peer import Peer
from .remote import RemoteSession
from .remote_sessions import RemoteSessions


class Departures:
    """One instance per worker.

    Args:
        remotes: keeps the session from now on.
        announcements: knows which workers were told of it.
        send_off: removes it from the packages of this worker.
    """

    def __init__(
        self,
        remotes: RemoteSessions,
        announcements: Announcements,
        send_off: Callable[[str, RemoteSession], None],
    ) -> None:
        self._remotes = remotes
        self._announcements = announcements
        self._send_off = send_off

    def leave(self, session_id: str, peer: Peer) -> list[str]:
        """Make a session remote; return the workers that know of it."""
        remote = self._remotes.begin(session_id, peer)
        told = self._announcements.handed_over(session_id)
        self._send_off(session_id, remote)
        return told
