"""Who is where, told between workers: of our sessions to who watches, of theirs to our table.

A worker tells who watches a name (interest.py) which of its sessions are there, and every change of
it; and what becomes of a session, who was told of it. Of no other session anybody is told.
"""

from __future__ import annotations

from msgnode.bus.ports import Layer, Listener
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS

from . import protocol
from .announcements import Announcements, as_up
from .arriving_frames import ArrivingFrames
from .copies import SessionCopies, is_probe
from .interest import Interest
from .own_names import HOLDS, LISTENS, SPEAKS, OwnNames
from .peer import Peer
from .ports import LocalSessions, SessionHandover
from .protocol import (
    AddressAdded,
    AddressRemoved,
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
from .transport import PeerTransport

_KINDS = {Layer.OWNED: HOLDS, Layer.SUBSCRIBED: LISTENS, Layer.LEARNED: SPEAKS}


class TableReplicator:
    """One instance per worker. Implements the bus's TableObserver and TransportClient."""

    def __init__(
        self,
        table: RoutingTable,
        transport: PeerTransport,
        local: LocalSessions,
        names: OwnNames,
        interest: Interest,
    ) -> None:
        self.announcements = Announcements(table, transport, names)
        self.copies = SessionCopies(table, local, names, interest)
        self.frames = ArrivingFrames(table, transport, local)
        self.remotes = self.copies.remotes
        self.snapshot = self.announcements.snapshot
        self.tell_at = self.announcements.tell_at
        self.remotes_at = self.copies.remotes_at
        self._names = names
        self._table = table
        self._transport = transport
        self._local = local
        names.sessions = self
        interest.copies = self.copies
        transport.links.client = self
        table.watcher = self

    def move_by(self, moves: SessionHandover) -> None:
        """Sessions change their worker in this way."""
        self._moves = self.copies.moves = self.frames.moves = moves
        self.announcements.is_leaving = moves.is_leaving

    # --- what we say ------------------------------------------------------------------------------

    def entered(self, session: Listener) -> None:
        """A session of this worker is there, or something about it has changed."""
        if is_probe(session):
            self._transport.tell(as_up(session))
        elif self._table.knows(session):
            self.announcements.entered(session)
            self._names.arrived(HOLDS, (session.runtime_url,))

    def left(self, session: Listener) -> None:
        """A session of this worker has ended."""
        if is_probe(session):
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
        """A session of this worker holds an address now, or no longer.

        Args:
            layer: of the routing table.
            address: that it holds.
            session: of this worker.
            holds: whether it holds it now.
            before: who had learned it until now.
        """
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
                self.copies.contest(address, before, session)
            elif not holds:
                self.copies.give_in(address, session)
        elif layer is Layer.OWNED and not holds:
            self.copies.fall_back(address)

    # --- what we hear -----------------------------------------------------------------------------

    def heard(self, peer: Peer, message: protocol.AnyMessage) -> None:
        """Do what another worker has said."""
        match message:
            case PlainFrame() | ResponseFrame() | RequestFrame():
                self.frames.take(peer, message)
            case AddressAdded():
                self.copies.hold(peer, message)
            case AddressRemoved():
                self.copies.drop(peer, message)
            case SessionUp():
                self.copies.enter(peer, message)
            case SessionDown(session):
                self.copies.leave(session, peer)
            case Backpressure():
                self.copies.are_behind(message)
            case SessionsAt():
                self.copies.are_at(peer, message)
            case SnapshotBegins():
                self.copies.begin_snapshot(peer)
            case SnapshotEnds():
                self.copies.end_snapshot(peer)
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
                self._moves.heard(peer, message)

    def peer_down(self, peer: Peer) -> None:
        """A worker is not heard of; its sessions may come back with it."""
        self.copies.resume(peer)
        self._moves.down(peer)
