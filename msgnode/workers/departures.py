"""A session of this worker becomes that of another: it was given away, or taken from outside."""

from __future__ import annotations

from collections.abc import Callable

from .announcements import Announcements
from .peer import Peer
from .remote import RemoteSession
from .remote_sessions import RemoteSessions


class Departures:
    """One instance per worker.

    Args:
        remotes: have the session from now on.
        announcements: know who was told of it.
        send_off: lets the packages of this worker do without it.
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
        """A session is remote from now on; the workers that were told of it."""
        remote = self._remotes.begin(session_id, peer)
        told = self._announcements.handed_over(session_id)
        self._send_off(session_id, remote)
        return told
