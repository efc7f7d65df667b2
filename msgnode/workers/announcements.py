"""Announces the sessions of this worker to the workers that watch a name where they are.

Rules
- A worker that was told of a session (`SessionUp`) is told of its changes until it has ended or
  moved, or until that worker has said that it no longer watches any of its names.
- A session that is about to leave is still announced, and so is where it goes.
- A link that begins anew gets a snapshot of what that worker watches here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable

from .linked_worker import LinkedWorker
from .protocol import EntriesOwed, LinkMessage, SessionDown, SessionMoved, SessionsAt, SessionUp
from .remote_sessions import RemoteSession
from .transport import LinkTransport


class Announcements:
    """One instance per worker."""

    def __init__(self, watchers: Watchers, transport: LinkTransport) -> None:
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
            if epoch != session.worker.epoch:  # it says so itself
                self._transport.tell_some([epoch], as_up(session))
                moved = SessionMoved([session.id], session.worker.epoch)
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


class Watchers:
    """The names that other workers watch here, and the sessions of this worker they know of.

    One instance per worker. own_names.py keeps the watched names up to date, handover.py the
    leaving sessions.

    Attributes:
        names: by the epoch of a worker, the names that it watches here.
        told: by session of this worker, the epochs of the workers that know of it.
        leaving: sessions of this worker that are moving to another one, until that has all of them.
        owed: names that the directory did not accept: all workers are told of them.
    """

    def __init__(self, table: RoutingTable) -> None:
        self.names: dict[str, set[str]] = {}
        self.told: dict[str, set[str]] = {}
        self.leaving: set[str] = set()
        self.owed: set[str] = set()
        self._table = table

    def snapshot(self, other: LinkedWorker) -> Iterator[LinkMessage]:
        """What another worker watches here; some of what it was told before may have been lost.

        Args:
            other: the worker whose stream begins; each message is valid when it is taken.
        """
        for those in self.told.values():
            those.discard(other.epoch)
        for probe in tuple(self._table.probes.values()):
            if probe.is_here:
                yield as_up(probe)
        yield EntriesOwed(bool(self.owed))
        named: set[str] = set()
        for name in self.in_order(self.names.get(other.epoch, ())):
            for session in self.sessions_at(name):
                if session.id not in named:
                    named.add(session.id)
                    self.told.setdefault(session.id, set()).add(other.epoch)
                    yield as_up(session)
            yield self.all_at(name)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Names in the order in which a worker is told of them that may not watch all: URLs last.

        A session that it is told of at its runtime's URL, which it does not watch, it does not
        keep unless it knows it at another name by then.
        """
        return sorted(names, key=self._table.runtimes.__contains__)

    def unknown_sessions(self) -> set[str]:
        """The sessions of this worker of which others may not know: they may miss something."""
        return {session.id for name in self.owed for session in self.sessions_at(name)}

    def sessions_at(self, name: str) -> list[Listener]:
        """This worker's sessions at a name, leaving ones included."""
        table = self._table
        there = [*table.subscribers(name), *table.runtimes.get(name, ())]
        there += [each for each in (table.owners.get(name), table.learned.get(name)) if each]
        return [each for each in there if self._is_ours(each)]

    def all_at(self, name: str) -> SessionsAt:
        """The sessions at a name, as a message."""
        table = self._table
        owner, learner = table.owners.get(name), table.learned.get(name)
        return SessionsAt(
            name,
            [owner.id] if owner is not None and self._is_ours(owner) else [],
            [each.id for each in table.subscribers(name) if self._is_ours(each)],
            [learner.id] if learner is not None and self._is_ours(learner) else [],
        )

    def _is_ours(self, session: Listener) -> bool:
        return session.is_here or session.id in self.leaving


def as_up(session: Listener, is_new: bool = True) -> SessionUp:
    """The message that announces a session."""
    return SessionUp(
        session.id,
        session.runtime_url,
        session.token_hash,
        session.bound_at,
        session.is_connected,
        session.speaker,
        is_new,
    )
