"""The sessions of other workers in this routing table, and their names.

Which of them are there is decided by the announcements of their workers (copies.py) and by the
names that are watched here (interest.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgnode.bus.ports import Layer, Listener
from msgnode.bus.table import RoutingTable

from .peer import Peer
from .remote import RemoteSession
from .rivals import Rivals


class RemoteSessions:
    """One instance per worker.

    Attributes:
        by_id: all of them.
        rivals: decides if two of them hold an address for a moment.
        on_entered: called with a session that is new or whose speaker has changed.
        on_left: called with a session that has left the table.
    """

    def __init__(self, table: RoutingTable) -> None:
        self.by_id: dict[str, RemoteSession] = {}
        self.rivals = Rivals(table)
        self.on_entered: list[Callable[[Listener], None]] = []
        self.on_left: list[Callable[[Listener], None]] = []
        self._table = table

    def begin(self, session_id: str, peer: Peer) -> RemoteSession:
        """Add a session of another worker."""
        session = self.by_id[session_id] = RemoteSession(session_id, peer)
        return session

    def of(self, peer: Peer) -> list[RemoteSession]:
        """The sessions of a worker."""
        return [each for each in self.by_id.values() if each.peer is peer]

    def at(self, name: str) -> Iterator[RemoteSession]:
        """The sessions of other workers at a name."""
        table = self._table
        there: dict[Listener | None, None] = dict.fromkeys(table.subscribers(name))
        there.update(dict.fromkeys(table.runtimes.get(name, ())))
        there[table.owners.get(name)] = there[table.learned.get(name)] = None
        there.update(dict.fromkeys(self.rivals.at(name)))
        for each in there:
            if isinstance(each, RemoteSession):
                yield each

    def enter(self, session: RemoteSession) -> None:
        """Add a session, or note its change."""
        if is_probe(session):
            self._table.add_probe(session)
            return
        self._table.add_runtime(session)
        for each in self.on_entered:
            each(session)

    def put_at(self, session: RemoteSession, layer: Layer, name: str) -> Listener | None:
        """Add a session at a name in a layer of the table.

        Returns:
            The session of this worker that has lost its ownership of the address by that, if any.
        """
        if layer is Layer.OWNED:
            return self.rivals.own(session, name)
        if layer is Layer.LEARNED:
            self.rivals.learn(session, name)
        else:
            session.subscribed.add(name)
            self._table.subscribe(name, session)
        return None

    def take_from(self, session: RemoteSession, layer: Layer, name: str) -> None:
        """Remove a session from a name in a layer of the table."""
        if layer is Layer.OWNED:
            self.rivals.disown(session, name)
        elif layer is Layer.LEARNED:
            self.rivals.unlearn(session, name)
        else:
            session.subscribed.discard(name)
            self._table.unsubscribe(name, session)

    def remove(self, session: RemoteSession) -> None:
        """Remove a session, with all it holds."""
        self.by_id.pop(session.id, None)
        for address in tuple(session.owned):
            self.rivals.disown(session, address)
        for address in session.subscribed:
            self._table.unsubscribe(address, session)
        self.forget_learned(session)
        self._table.remove_probe(session)
        self._table.remove_runtime(session)
        for each in self.on_left:
            each(session)
        session.resume()

    def forget_learned(self, session: RemoteSession) -> None:
        """Remove what a session has learned, which ends with its worker."""
        for address in tuple(session.learned):
            self.rivals.unlearn(session, address)

    def resume(self, peer: Peer) -> None:
        """Release those who wait for readers of a worker that is down."""
        for session in self.of(peer):
            session.resume()


def is_probe(session: Listener) -> bool:
    """Whether it is a worker's probe: no runtime has an address of the node."""
    return session.runtime_url.startswith("domain://")
