"""What this worker tells others of its sessions: to those that watch a name where they are.

Rules
- A worker that is told of a session (`SessionUp`) is told what becomes of it until it has ended,
  has moved, or the worker has said that it does not watch where it is any more.
- A session that is about to leave is still told of, and where it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable

from .own_names import OwnNames
from .peer import Peer
from .protocol import EntriesOwed, PeerMessage, SessionDown, SessionMoved, SessionsAt, SessionUp
from .remote import RemoteSession
from .transport import PeerTransport


class Announcements:
    """One instance per worker. `is_leaving` says whether a session is on its way to another one."""

    def __init__(self, table: RoutingTable, transport: PeerTransport, names: OwnNames) -> None:
        self.is_leaving: Callable[[str], bool] = lambda session_id: False
        self._table = table
        self._transport = transport
        self._names = names
        self._told: dict[str, set[str]] = {}  # session of ours -> epochs that know of it

    def entered(self, session: Listener) -> None:
        """A session of this worker is there, or something about it has changed."""
        self._transport.tell_some(self._told.get(session.id, ()), as_up(session, is_new=False))
        for epoch in self._names.watchers_of(session.runtime_url):
            self.tell_of(session, epoch)

    def left(self, session: Listener) -> None:
        """A session of this worker has ended."""
        self._transport.tell_some(self._told.pop(session.id, ()), SessionDown(session.id))

    def unwatched(self, session_id: str, epoch: str) -> None:
        """A worker does not want to hear of a session any more."""
        self._told.get(session_id, set()).discard(epoch)

    def snapshot(self, peer: Peer) -> Iterator[PeerMessage]:
        """What a peer watches of us; of what it was told before, some may have been lost."""
        for those in self._told.values():
            those.discard(peer.epoch)
        for probe in tuple(self._table.probes.values()):
            if probe.is_here:
                yield as_up(probe)
        yield EntriesOwed(self._names.is_owing)
        told: set[str] = set()
        for name in self._names.watched_by(peer.epoch):
            for session in self._sessions_at(name):
                if session.id not in told:
                    told.add(session.id)
                    self._told.setdefault(session.id, set()).add(peer.epoch)
                    yield as_up(session)
            yield self._at(name)

    def tell_at(self, name: str, epochs: Collection[str]) -> None:
        """Tell these workers which sessions of this one are at a name."""
        if not epochs:
            return
        for session in self._sessions_at(name):
            for epoch in epochs:
                self.tell_of(session, epoch)
        said = self._at(name)
        ids = len(said.owned) + len(said.subscribed) + len(said.learned)
        self._transport.tell_some(epochs, said, len(name) + 40 * ids)

    def handed_over(self, session_id: str) -> list[str]:
        """A session goes to another worker: who was told of it."""
        return [*self._told.pop(session_id, ())]

    def taken_in(self, session_id: str, told: Collection[str]) -> None:
        """A session comes from another worker, which had told these of it."""
        self._told[session_id] = set(told) - {self._transport.me.epoch}

    def told_of(self, session_id: str) -> Collection[str]:
        """The workers that know of a session of ours."""
        return self._told.get(session_id, ())

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

    def _sessions_at(self, name: str) -> list[Listener]:
        """Our sessions at a name, and those that are about to leave."""
        table = self._table
        there = [*table.subscribers(name), *table.runtimes.get(name, ())]
        there += [each for each in (table.owners.get(name), table.learned.get(name)) if each]
        return [each for each in there if self._is_ours(each)]

    def _is_ours(self, session: Listener) -> bool:
        return session.is_here or self.is_leaving(session.id)

    def _at(self, name: str) -> SessionsAt:
        table = self._table
        owner, learner = table.owners.get(name), table.learned.get(name)
        return SessionsAt(
            name,
            [owner.id] if owner is not None and self._is_ours(owner) else [],
            [each.id for each in table.subscribers(name) if self._is_ours(each)],
            [learner.id] if learner is not None and self._is_ours(learner) else [],
        )

    def announce(self, session: Listener) -> None:
        """A session has come to this worker: tell who knows of it."""
        self._transport.tell_some(self._told.get(session.id, ()), as_up(session))


def as_up(session: Listener, is_new: bool = True) -> SessionUp:
    """What is told of a session."""
    return SessionUp(
        session.id,
        session.runtime_url,
        session.token_hash,
        session.bound_at,
        session.is_connected,
        session.speaker,
        is_new,
    )
