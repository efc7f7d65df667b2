"""Sessions of other workers in our routing table, with those of their names that are watched here.

Rules
- A session of another worker stands in the table with those of its names alone that are watched
  here (interest.py), and goes with the last of them.
- An address that sessions of two workers hold for a moment is settled by rivals.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgnode.bus.ports import Layer, Listener
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS

from .interest import Interest
from .own_names import OwnNames
from .peer import Peer
from .ports import LocalSessions, SessionHandover
from .protocol import (
    AddressAdded,
    AddressRemoved,
    Backpressure,
    SessionDown,
    SessionsAt,
    SessionUp,
    SnapshotBegins,
    SnapshotEnds,
    Unwatch,
)
from .remote import RemoteSession
from .rivals import Rivals


class SessionCopies:
    """One instance per worker. `moves` is set before the start."""

    def __init__(
        self, table: RoutingTable, local: LocalSessions, names: OwnNames, interest: Interest
    ) -> None:
        self.moves: SessionHandover
        self.remotes: dict[str, RemoteSession] = {}
        self._table = table
        self._local = local
        self._names = names
        self._interest = interest
        self._old: dict[str, set[str]] = {}  # epoch -> sessions its snapshot has not named yet
        self.rivals = Rivals(table, local.withdraw)

    # --- what a worker says of its sessions -------------------------------------------------------

    def begin_snapshot(self, peer: Peer, _: SnapshotBegins) -> None:
        """All that we watch of a worker's sessions follows."""
        self._old[peer.epoch] = {each.id for each in self._of(peer)}

    def end_snapshot(self, peer: Peer, _: SnapshotEnds) -> None:
        """That was all; what it did not name has ended."""
        for id_ in self._old.pop(peer.epoch, ()):
            with FAULTS.kept_to("session"):
                self._leave(id_, peer)

    def enter(self, peer: Peer, message: SessionUp) -> None:
        """A session is there, or something about it has changed."""
        if message.session in self._local.sessions:
            self.moves.taken_over(message.session)
        session = self.remotes.get(message.session)
        if session is None:
            if not message.is_new:
                return  # we have said that we do not watch it any more
            session = self.remotes[message.session] = RemoteSession(message.session, peer)
        self._old.get(peer.epoch, set()).discard(message.session)
        session.peer = peer
        session.runtime_url = message.runtime_url
        session.token_hash = message.token_hash
        session.is_connected = message.is_connected
        session.bound_at = message.bound_at
        session.speaker = message.speaker
        if is_probe(session):
            self._table.add_probe(session)
            return
        self._table.add_runtime(session)
        self._local.remote_entered(session)
        self._names.met(peer, session.runtime_url)

    def end(self, peer: Peer, message: SessionDown) -> None:
        """A session has ended, unless it has moved from that worker meanwhile."""
        self._leave(message.session, peer)

    def _leave(self, id_: str, peer: Peer) -> None:
        session = self.remotes.get(id_)
        if session is not None and session.peer is peer:
            self._remove(session)

    def hold(self, peer: Peer, message: AddressAdded) -> None:
        """A session holds addresses."""
        session = self.remotes.get(message.session)
        for name in message.addresses:
            if not self._interest.accepts(name):
                peer.out.put(Unwatch([name], []))
                self._drop_unneeded(peer, [session] if session is not None else [])
            elif session is None:
                self._interest.ask_again(name)
            elif session.peer is peer or message.layer == Layer.SUBSCRIBED.value:
                self._set(session, Layer(message.layer), name, True)

    def drop(self, peer: Peer, message: AddressRemoved) -> None:
        """A session holds addresses no longer."""
        session = self.remotes.get(message.session)
        if session is None or session.peer is not peer:
            return
        for name in message.addresses:
            self._set(session, Layer(message.layer), name, False)
        self._drop_unneeded(peer, [session])

    def are_at(self, peer: Peer, message: SessionsAt) -> None:
        """These are all sessions of a worker at a name."""
        name = message.name
        if not self._interest.accepts(name):
            dropped = self.evict(name).get(peer, [])
            peer.out.put(Unwatch([name], dropped))
            return
        gone: list[RemoteSession] = []
        named = (message.owned, message.subscribed, message.learned)
        for session in [each for each in self.remotes_at(name) if each.peer is peer]:
            for layer, ids in zip(Layer, named, strict=True):
                if session.id not in ids:
                    self._set(session, layer, name, False)
                    gone.append(session)
        self._drop_unneeded(peer, gone)
        for layer, ids in zip(Layer, named, strict=True):
            for id_ in ids:
                remote = self.remotes.get(id_)
                if remote is not None:
                    self._set(remote, layer, name, True)
                elif id_ not in self._local.sessions:
                    self._interest.ask_again(name)
        if any(named):
            self._names.met(peer, name)

    def are_behind(self, peer: Peer, message: Backpressure) -> None:
        """A session is behind with its reading, or no longer."""
        session = self.remotes.get(message.session)
        if session is None:
            return
        if message.is_behind:
            session.is_behind = True
        else:
            session.resume()

    def resume(self, peer: Peer) -> None:
        """A worker is down: nobody waits for its sessions' reading."""
        for session in self._of(peer):
            session.resume()

    # --- what goes --------------------------------------------------------------------------------

    def forget(self, peer: Peer) -> None:
        """A worker has ended for good: nobody listens there."""
        for session in self._of(peer):
            names = (session.runtime_url, *session.owned, *session.subscribed, *session.learned)
            with FAULTS.kept_to("session"):
                self._remove(session)
            self._interest.doubt(names)  # whoever has taken it may not have said so yet
        self._names.forget(peer.epoch)
        self._old.pop(peer.epoch, None)

    def forget_learned(self, session: RemoteSession) -> None:
        """What a session has learned ends with its worker."""
        for address in tuple(session.learned):
            self.rivals.unlearn(session, address)

    def remotes_at(self, name: str) -> Iterator[RemoteSession]:
        """The sessions of other workers at a name."""
        table = self._table
        there: dict[Listener | None, None] = dict.fromkeys(table.subscribers(name))
        there.update(dict.fromkeys(table.runtimes.get(name, ())))
        there[table.owners.get(name)] = there[table.learned.get(name)] = None
        there.update(dict.fromkeys(self.rivals.at(name)))
        for each in there:
            if isinstance(each, RemoteSession):
                yield each

    def evict(self, name: str) -> dict[Peer, list[str]]:
        """Take out who is at a name.

        Returns:
            By worker, the sessions that are not in the table any more.
        """
        dropped: dict[Peer, list[str]] = {}
        for session in tuple(self.remotes_at(name)):
            for layer in Layer:
                self._set(session, layer, name, False)
            ids = dropped.setdefault(session.peer, [])
            if not self._is_needed(session):
                ids.append(session.id)
                self._remove(session)
        return dropped

    def _of(self, peer: Peer) -> list[RemoteSession]:
        return [each for each in self.remotes.values() if each.peer is peer]

    def _remove(self, session: RemoteSession) -> None:
        self.remotes.pop(session.id, None)
        for address in tuple(session.owned):
            self.rivals.disown(session, address)
        for address in session.subscribed:
            self._table.unsubscribe(address, session)
        self.forget_learned(session)
        self._table.remove_probe(session)
        self._table.remove_runtime(session)
        self._local.remote_left(session)
        session.resume()

    def _drop_unneeded(self, peer: Peer, sessions: Iterable[RemoteSession]) -> None:
        """Sessions that have given something back go, if they are at no other name."""
        dropped = []
        for session in dict.fromkeys(sessions):
            if not self._is_needed(session):
                dropped.append(session.id)
                self._remove(session)
        if dropped:
            peer.out.put(Unwatch([], dropped))

    def _is_needed(self, session: RemoteSession) -> bool:
        is_at_a_name = bool(session.owned or session.subscribed or session.learned)
        return is_at_a_name or self._interest.accepts(session.runtime_url)

    def _set(self, session: RemoteSession, layer: Layer, name: str, is_there: bool) -> None:
        """A session is at a name in a layer of the table now, or no longer."""
        rivals = self.rivals
        if layer is Layer.OWNED:
            (rivals.own if is_there else rivals.disown)(session, name)
        elif layer is Layer.LEARNED:
            (rivals.learn if is_there else rivals.unlearn)(session, name)
        elif is_there:
            session.subscribed.add(name)
            self._table.subscribe(name, session)
        else:
            session.subscribed.discard(name)
            self._table.unsubscribe(name, session)


def is_probe(session: Listener) -> bool:
    """Whether it is a worker's probe: no runtime has an address of the node."""
    return session.runtime_url.startswith("domain://")
