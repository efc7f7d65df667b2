"""Announces the sessions of this worker to the workers that watch a name where they are.

Rules
- A worker that was told of a session (`SessionUp`) is told of its changes until it has ended or
  moved, or until that worker has said that it no longer watches any of its names.
- A session that is about to leave is still announced, and so is where it goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgnode.bus.ports import Listener

from .protocol import SessionDown, SessionMoved
from .remote import RemoteSession
from .transport import PeerTransport
from .watchers import Watchers, as_up


class Announcements:
    """One instance per worker."""

    def __init__(self, watchers: Watchers, transport: PeerTransport) -> None:
        self._watchers = watchers
        self._told = watchers.told
        self._transport = transport

    def entered(self, session: Listener, watching: Iterable[str]) -> None:
        """Announce a session of this worker that is new or has changed.

        Args:
            session: a session of this worker.
            watching: the epochs of the workers that watch its runtime's URL.
        """
        self._transport.tell_some(self._told.get(session.id, ()), as_up(session, is_new=False))
        for epoch in watching:
            self.tell_of(session, epoch)

    def left(self, session: Listener) -> None:
        """Announce the end of a session of this worker."""
        self._transport.tell_some(self._told.pop(session.id, ()), SessionDown(session.id))

    def announce(self, session: Listener) -> None:
        """Announce a session that has moved here to those that know of it."""
        self._transport.tell_some(self._told.get(session.id, ()), as_up(session))

    def unwatched(self, session_id: str, epoch: str) -> None:
        """Stop announcing a session to a worker."""
        self._told.get(session_id, set()).discard(epoch)

    def tell_at(self, name: str, epochs: Collection[str]) -> None:
        """Tell these workers which sessions of this worker are at a name."""
        if not epochs:
            return
        for session in self._watchers.sessions_at(name):
            for epoch in epochs:
                self.tell_of(session, epoch)
        said = self._watchers.all_at(name)
        ids = len(said.owned) + len(said.subscribed) + len(said.learned)
        self._transport.tell_some(epochs, said, len(name) + 40 * ids)

    def tell_of(self, session: Listener, epoch: str) -> None:
        """Ensure that a worker knows of a session of this worker, or of one that is leaving."""
        told = self._told.setdefault(session.id, set())
        if epoch in told:
            return
        if isinstance(session, RemoteSession):
            if epoch != session.peer.epoch:  # it says so itself
                self._transport.tell_some([epoch], as_up(session))
                moved = SessionMoved([session.id], session.peer.epoch)
                self._transport.tell_some([epoch], moved)
            return
        told.add(epoch)
        self._transport.tell_some([epoch], as_up(session))

    # --- sessions that move -----------------------------------------------------------------------

    def told_of(self, session_id: str) -> Collection[str]:
        """The workers that know of a session of this worker."""
        return self._told.get(session_id, ())

    def handed_over(self, session_id: str) -> list[str]:
        """Forget a session that moves to another worker; return the workers that know of it."""
        return [*self._told.pop(session_id, ())]

    def taken_in(self, session_id: str, told: Collection[str]) -> None:
        """Note a session that moves here, and the workers that know of it."""
        self._told[session_id] = set(told) - {self._transport.me.epoch}
