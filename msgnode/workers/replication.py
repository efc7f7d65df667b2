"""Sessions of other workers in our routing table, where we watch; ours in theirs.

Rules
- A worker tells who watches a name (interest.py) which of its sessions are there, and every change
  of it; and what becomes of a session, who was told of it. Of no other session anybody is told.
- A session of another worker stands in the table with those of its names alone that are watched
  here, and goes with the last of them.
- Two workers may give one address to two sessions before they hear of each other. An allocated
  address is settled by the database's unique commit: what a peer says it holds, a session here
  holds no longer. A learned one belongs to the session with the smaller id. So all tables end
  equal, whatever the order of the words.
- A frame for a session that is not here any more is answered, and whoever sent it told that the
  session is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial

from msgnode.bus.ports import DeliveryResult, Layer, Listener, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS

from . import protocol
from .announcements import Announcements, as_up
from .interest import Interest
from .own_names import HOLDS, LISTENS, SPEAKS, OwnNames
from .peer import Peer
from .ports import ArrivalTracer, LocalSessions, SessionHandover
from .protocol import (
    AddressAdded,
    AddressRemoved,
    AnyFrame,
    Backpressure,
    CheckSocket,
    CounterReport,
    EntriesOwed,
    LostFrames,
    NamesRequest,
    NamesResponse,
    PlainFrame,
    RequestFrame,
    ResponseFrame,
    RpcRequest,
    RpcResponse,
    SessionDown,
    SessionsAt,
    SessionUp,
    SnapshotBegins,
    SnapshotEnds,
    SocketChecked,
    Unwatch,
)
from .remote import RemoteSession
from .transport import PeerTransport

log = logging.getLogger(__name__)

_KINDS = {Layer.OWNED: HOLDS, Layer.SUBSCRIBED: LISTENS, Layer.LEARNED: SPEAKS}


class TableReplicator:
    """One instance per worker. Implements the bus's TableObserver and TransportClient."""

    def __init__(
        self, table: RoutingTable, transport: PeerTransport, local: LocalSessions, names: OwnNames
    ) -> None:
        self.announcements = Announcements(table, transport, names)
        self.snapshot = self.announcements.snapshot
        self.tell_at = self.announcements.tell_at
        self._names = names
        names.sessions = self
        self.remotes: dict[str, RemoteSession] = {}
        self.moves: SessionHandover
        self.traces: ArrivalTracer | None = None
        self.interest: Interest
        self._table = table
        self._transport = transport
        self._local = local
        self._old: dict[str, set[str]] = {}  # epoch -> sessions its snapshot has not named yet
        self._rivals: dict[str, dict[str, Listener]] = {}  # learned address -> who learned it
        self._owners: dict[str, dict[str, RemoteSession]] = {}  # owned by several, for a moment
        self._behind: set[str] = set()
        transport.client = self
        table.watcher = self

    # --- what we say ------------------------------------------------------------------------------

    def entered(self, session: Listener) -> None:
        if _is_probe(session):
            self._transport.tell(as_up(session))
        elif self._table.knows(session):
            self.announcements.entered(session)
            self._names.arrived(HOLDS, (session.runtime_url,))

    def left(self, session: Listener) -> None:
        if _is_probe(session):
            self._transport.tell(SessionDown(session.id))
            return
        self.announcements.left(session)
        self._names.left((session.runtime_url,))

    def changed(
        self,
        layer: Layer,
        address: str,
        session: Listener,
        holds: bool,
        before: Listener | None = None,
    ) -> None:
        told = self._names.watchers_of(address)
        if holds:
            for epoch in told:
                self.announcements.tell_of(session, epoch)
        message = AddressAdded if holds else AddressRemoved
        self._transport.tell_some(told, message(session.id, layer.value, [address]), len(address))
        if holds:
            self._names.arrived(_KINDS[layer], (address,))
        else:
            self._names.left((address,))
        if layer is Layer.LEARNED:
            if holds and before is not None:
                self._contest(address, before, session)
            elif not holds:
                self._give_in(address, session)
        elif layer is Layer.OWNED and not holds:
            self._fall_back(address)

    # --- what we hear -----------------------------------------------------------------------------

    def heard(self, peer: Peer, message: protocol.AnyMessage) -> None:
        match message:
            case PlainFrame() | ResponseFrame() | RequestFrame():
                self._frame(peer, message)
            case AddressAdded():
                self._hold(peer, message)
            case AddressRemoved():
                self._drop(peer, message)
            case SessionUp():
                self._enter(peer, message)
            case SessionDown(session):
                self._leave(session, peer)
            case Backpressure():
                self._is_behind(message)
            case SessionsAt():
                self._are_at(peer, message)
            case SnapshotBegins():
                self._old[peer.epoch] = {
                    session.id for session in self.remotes.values() if session.peer is peer
                }
            case SnapshotEnds():
                for id_ in self._old.pop(peer.epoch, ()):
                    with FAULTS.kept_to("session"):
                        self._leave(id_, peer)
            case CounterReport() | RpcRequest() | RpcResponse() | NamesRequest() | NamesResponse():
                self._local.said(peer, message)
            case EntriesOwed(is_owed):
                peer.owes_entries = is_owed
            case Unwatch(names, sessions):
                self._names.unwatched(peer, names)
                for id_ in sessions:
                    self.announcements.unwatched(id_, peer.epoch)
            case CheckSocket(session):
                self._local.check_socket(peer, session)
            case SocketChecked(session, outcome):
                self._local.socket_checked(session, outcome)
            case LostFrames(sessions):
                for id_ in sessions:
                    with FAULTS.kept_to("session"):
                        self._local.missed(id_)
            case _:
                self.moves.heard(peer, message)

    def peer_down(self, peer: Peer) -> None:
        for session in self.remotes.values():
            if session.peer is peer:
                session.resume()
        self.moves.down(peer)

    def return_paths(self, session_id: str) -> list[ReturnPath]:
        """Where the answers that a session may still give go."""
        return self._table.return_paths.of(session_id)

    def take_return_paths(self, session_id: str, paths: Iterable[ReturnPath]) -> None:
        """A session has come with these."""
        for path in paths:
            self._table.return_paths.remember(path, session_id)

    def forward(self, remote: RemoteSession, message: AnyFrame) -> None:
        """A frame came for a session that has moved on."""
        path = _path_of(message) if isinstance(message, RequestFrame) else None
        if message.trace:
            remote.deliver_traced(message.frame, path, message.trace)
        elif path is not None:
            remote.deliver_request(message.frame, path)
        else:
            remote.deliver(message.frame)

    def forget_learned(self, session: RemoteSession) -> None:
        """What a session has learned ends with its worker."""
        for address in tuple(session.learned):
            self._unlearn(session, address)

    def forget(self, peer: Peer) -> None:
        """A worker has ended for good: nobody listens there."""
        for session in [each for each in self.remotes.values() if each.peer is peer]:
            names = (session.runtime_url, *session.owned, *session.subscribed, *session.learned)
            with FAULTS.kept_to("session"):
                self.remove(session)
            self.interest.doubt(names)  # whoever has taken it may not have said so yet
        self._names.forget(peer.epoch)
        self._old.pop(peer.epoch, None)

    def remove(self, session: RemoteSession) -> None:
        """A session of another worker is no more."""
        self.remotes.pop(session.id, None)
        for address in tuple(session.owned):
            self._disown(session, address)
        for address in session.subscribed:
            self._table.unsubscribe(address, session)
        self.forget_learned(session)
        self._table.remove_probe(session)
        self._table.remove_runtime(session)
        self._local.remote_left(session)
        session.resume()

    def _frame(self, peer: Peer, message: AnyFrame) -> None:
        if isinstance(message, RequestFrame):
            answerer = message.sessions[0] if len(message.sessions) == 1 else ""
            self._table.return_paths.remember(_path_of(message), answerer)
        for id_ in message.sessions:
            session = self._local.sessions.get(id_) or self._own_probe(id_)
            try:
                self._frame_for(id_, session, peer, message)
            except Exception as error:
                FAULTS.note("listener", error)
                if session is not None:
                    session.missed()

    def _own_probe(self, id_: str) -> Listener | None:
        for probe in self._table.probes.values():
            if probe.is_here and probe.id == id_:
                return probe
        return None

    def _frame_for(self, id_: str, session: Listener | None, peer: Peer, message: AnyFrame) -> None:
        if isinstance(message, ResponseFrame):
            response = Response(message.to, message.id, message.responder)
            if session is None:
                self.moves.take_response(peer, id_, message.frame, response)
                return
            taken = self._local.respond(session, message.frame, response)
        elif session is None:
            if not self.moves.take(peer, id_, message):
                peer.out.put(SessionDown(id_))
                if len(message.sessions) == 1:
                    self._local.undeliverable(message.frame)
            return
        else:
            taken = session.deliver(message.frame)
        if message.trace and self.traces is not None:
            self.traces.arrived(message.trace, message.frame, session, taken, peer.name)
        if taken is DeliveryResult.BEHIND and id_ not in self._behind:
            self._behind.add(id_)
            self._transport.tell(Backpressure(id_, True))
            session.when_writable(partial(self._caught_up, id_))

    def _caught_up(self, id_: str) -> None:
        self._behind.discard(id_)
        self._transport.tell(Backpressure(id_, False))

    def _is_behind(self, message: Backpressure) -> None:
        session = self.remotes.get(message.session)
        if session is None:
            return
        if message.is_behind:
            session.is_behind = True
        else:
            session.resume()

    def _enter(self, peer: Peer, message: SessionUp) -> None:
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
        if _is_probe(session):
            self._table.add_probe(session)
            return
        self._table.add_runtime(session)
        self._local.remote_entered(session)
        self._names.met(peer, session.runtime_url)

    def _leave(self, id_: str, peer: Peer) -> None:
        session = self.remotes.get(id_)
        if session is not None and session.peer is peer:
            self.remove(session)

    def _hold(self, peer: Peer, message: AddressAdded) -> None:
        session = self.remotes.get(message.session)
        for name in message.addresses:
            if not self.interest.accepts(name):
                peer.out.put(Unwatch([name], []))
                self._drop_unneeded(peer, [session] if session is not None else [])
            elif session is None:
                self.interest.ask_again(name)
            elif session.peer is peer or message.layer == Layer.SUBSCRIBED.value:
                self._add(session, Layer(message.layer), name)

    def _drop(self, peer: Peer, message: AddressRemoved) -> None:
        session = self.remotes.get(message.session)
        if session is None or session.peer is not peer:
            return
        for name in message.addresses:
            self._take(session, Layer(message.layer), name)
        self._drop_unneeded(peer, [session])

    def _are_at(self, peer: Peer, message: SessionsAt) -> None:
        name = message.name
        if not self.interest.accepts(name):
            dropped = self.evict(name).get(peer, [])
            peer.out.put(Unwatch([name], dropped))
            return
        gone: list[RemoteSession] = []
        named = (message.owned, message.subscribed, message.learned)
        for session in [each for each in self.remotes_at(name) if each.peer is peer]:
            for layer, ids in zip(Layer, named, strict=True):
                if session.id not in ids:
                    self._take(session, layer, name)
                    gone.append(session)
        self._drop_unneeded(peer, gone)
        for layer, ids in zip(Layer, named, strict=True):
            for id_ in ids:
                remote = self.remotes.get(id_)
                if remote is not None:
                    self._add(remote, layer, name)
                elif id_ not in self._local.sessions:
                    self.interest.ask_again(name)
        if any(named):
            self._names.met(peer, name)

    def _add(self, session: RemoteSession, layer: Layer, name: str) -> None:
        if layer is Layer.OWNED:
            self._own(session, name)
        elif layer is Layer.LEARNED:
            self._learn(session, name)
        else:
            session.subscribed.add(name)
            self._table.subscribe(name, session)

    def _take(self, session: RemoteSession, layer: Layer, name: str) -> None:
        if layer is Layer.OWNED:
            self._disown(session, name)
        elif layer is Layer.LEARNED:
            self._unlearn(session, name)
        else:
            session.subscribed.discard(name)
            self._table.unsubscribe(name, session)

    # --- what is watched no longer ----------------------------------------------------------------

    def remotes_at(self, name: str) -> Iterator[RemoteSession]:
        """The sessions of other workers at a name."""
        table = self._table
        there: dict[Listener | None, None] = dict.fromkeys(table.subscribers(name))
        there.update(dict.fromkeys(table.runtimes.get(name, ())))
        there[table.owners.get(name)] = there[table.learned.get(name)] = None
        there.update(dict.fromkeys(self._owners.get(name, {}).values()))
        there.update(dict.fromkeys(self._rivals.get(name, {}).values()))
        for each in there:
            if isinstance(each, RemoteSession):
                yield each

    def evict(self, name: str) -> dict[Peer, list[str]]:
        """Take out who is at a name; the sessions that are not in the table any more, by worker."""
        dropped: dict[Peer, list[str]] = {}
        for session in tuple(self.remotes_at(name)):
            for layer in Layer:
                self._take(session, layer, name)
            ids = dropped.setdefault(session.peer, [])
            if not self._is_needed(session):
                ids.append(session.id)
                self.remove(session)
        return dropped

    def _drop_unneeded(self, peer: Peer, sessions: Iterable[RemoteSession]) -> None:
        """Sessions that have given something back go, if they are at no other name."""
        dropped = []
        for session in dict.fromkeys(sessions):
            if not self._is_needed(session):
                dropped.append(session.id)
                self.remove(session)
        if dropped:
            peer.out.put(Unwatch([], dropped))

    def _is_needed(self, session: RemoteSession) -> bool:
        is_at_a_name = bool(session.owned or session.subscribed or session.learned)
        return is_at_a_name or self.interest.accepts(session.runtime_url)

    # --- addresses that two sessions hold for a moment --------------------------------------------

    def _own(self, session: RemoteSession, address: str) -> None:
        session.owned.add(address)
        before = self._table.owners.get(address)
        if isinstance(before, RemoteSession) and before is not session:
            rivals = self._owners.setdefault(address, {before.id: before})
            rivals[session.id] = session
        self._table.allocate(address, session)
        if before is not None and before.is_here:
            self._local.withdraw(address, before)

    def _disown(self, session: RemoteSession, address: str) -> None:
        session.owned.discard(address)
        self._table.release(address, session)
        rivals = self._owners.get(address)
        if rivals is not None:
            rivals.pop(session.id, None)
            if len(rivals) < 2:
                del self._owners[address]
            if address not in self._table.owners and rivals:
                self._table.allocate(address, next(iter(rivals.values())))

    def _fall_back(self, address: str) -> None:
        """A session here has released an address; one elsewhere may have it already."""
        for session in self._owners.get(address, {}).values():
            if address not in self._table.owners:
                self._table.allocate(address, session)

    def _learn(self, session: RemoteSession, address: str) -> None:
        session.learned.add(address)
        before = self._table.learned.get(address)
        if before is None or before is session:
            self._table.learned[address] = session
        else:
            self._contest(address, before, session)

    def _unlearn(self, session: RemoteSession, address: str) -> None:
        session.learned.discard(address)
        if self._table.learned.get(address) is session:
            del self._table.learned[address]
        self._give_in(address, session)

    def _contest(self, address: str, one: Listener, other: Listener) -> None:
        rivals = self._rivals.setdefault(address, {})
        rivals.update({one.id: one, other.id: other})
        self._table.learned[address] = rivals[min(rivals)]

    def _give_in(self, address: str, session: Listener) -> None:
        rivals = self._rivals.get(address)
        if rivals is None:
            return
        rivals.pop(session.id, None)
        if rivals:
            self._table.learned[address] = rivals[min(rivals)]
        if len(rivals) < 2:
            del self._rivals[address]


def _path_of(message: RequestFrame) -> ReturnPath:
    return ReturnPath(message.sender, message.id_key, message.asker, message.runtime_url)


def _is_probe(session: Listener) -> bool:
    """Whether it is a worker's probe: no runtime has an address of the node."""
    return session.runtime_url.startswith("domain://")
