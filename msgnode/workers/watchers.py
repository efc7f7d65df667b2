"""The names that other workers watch here, and the sessions of this worker they know of.

Other modules keep it up to date: own_names.py the watched names, announcements.py the sessions told
of, handover.py the leaving ones. A link that begins anew gets its snapshot from here.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable

from .peer import Peer
from .protocol import EntriesOwed, PeerMessage, SessionsAt, SessionUp


class Watchers:
    """One instance per worker.

    Attributes:
        names: by the epoch of a worker, the names that it watches here.
        told: by session of this worker, the epochs of the workers that know of it.
        leaving: sessions of this worker that are moving to another one.
        owed: names that the directory did not accept: all workers are told of them.
    """

    def __init__(self, table: RoutingTable) -> None:
        self.names: dict[str, set[str]] = {}
        self.told: dict[str, set[str]] = {}
        self.leaving: set[str] = set()
        self.owed: set[str] = set()
        self._table = table

    def snapshot(self, peer: Peer) -> Iterator[PeerMessage]:
        """What a peer watches here, because some of what it was told before may have been lost.

        Args:
            peer: the peer whose stream begins; each message is valid when it is taken.
        """
        for those in self.told.values():
            those.discard(peer.epoch)
        for probe in tuple(self._table.probes.values()):
            if probe.is_here:
                yield as_up(probe)
        yield EntriesOwed(bool(self.owed))
        named: set[str] = set()
        for name in tuple(self.names.get(peer.epoch, ())):
            for session in self.sessions_at(name):
                if session.id not in named:
                    named.add(session.id)
                    self.told.setdefault(session.id, set()).add(peer.epoch)
                    yield as_up(session)
            yield self.all_at(name)

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
