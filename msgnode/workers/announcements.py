"""What this worker tells others of its sessions: to those that watch a name where they are.

Rules
- A worker that is told of a session (`SessionUp`) is told what becomes of it until it has ended,
  has moved, or the worker has said that it does not watch where it is any more.
- A session that is about to leave is still told of, and where it goes.
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
        """A session of this worker is there, or something about it has changed.

        Args:
            session: of this worker.
            watching: the epochs of those that watch its runtime's URL.
        """
        self._transport.tell_some(self._told.get(session.id, ()), as_up(session, is_new=False))
        for epoch in watching:
            self.tell_of(session, epoch)

    def left(self, session: Listener) -> None:
        """A session of this worker has ended."""
        self._transport.tell_some(self._told.pop(session.id, ()), SessionDown(session.id))

    def announce(self, session: Listener) -> None:
        """A session has come to this worker: tell who knows of it."""
        self._transport.tell_some(self._told.get(session.id, ()), as_up(session))

    def unwatched(self, session_id: str, epoch: str) -> None:
        """A worker does not want to hear of a session any more."""
        self._told.get(session_id, set()).discard(epoch)

    def tell_at(self, name: str, epochs: Collection[str]) -> None:
        """Tell these workers which sessions of this one are at a name."""
        if not epochs:
            return
        for session in self._watchers.sessions_at(name):
            for epoch in epochs:
                self.tell_of(session, epoch)
        said = self._watchers.all_at(name)
        ids = len(said.owned) + len(said.subscribed) + len(said.learned)
        self._transport.tell_some(epochs, said, len(name) + 40 * ids)

    def tell_of(self, session: Listener, epoch: str) -> None:
        """See that a worker knows of a session of ours, or of one that leaves just now."""
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
        """The workers that know of a session of ours."""
        return self._told.get(session_id, ())

    def handed_over(self, session_id: str) -> list[str]:
        """A session goes to another worker: who was told of it."""
        return [*self._told.pop(session_id, ())]

    def taken_in(self, session_id: str, told: Collection[str]) -> None:
        """A session comes from another worker, which had told these of it."""
        self._told[session_id] = set(told) - {self._transport.me.epoch}
