"""Who is where, told between workers: of our sessions to who watches, of theirs to our table.

A worker tells who watches a name (interest.py) which of its sessions are there, and every change of
it; and what becomes of a session, who was told of it. Of no other session anybody is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgnode.bus.ports import Layer, Listener
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS

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
    EntriesOwed,
    LostFrames,
    PeerMessage,
    PlainFrame,
    RequestFrame,
    ResponseFrame,
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
    """One instance per worker. Implements the bus's TableObserver and links' Sessions."""

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
        self.evict = self.copies.evict
        self._names = names
        self._table = table
        self._transport = transport
        self._local = local
        names.sessions = interest.copies = self
        transport.links.sessions = self
        transport.heard_by.update(self._hear())
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
                self.copies.rivals.contest(address, before, session)
            elif not holds:
                self.copies.rivals.give_in(address, session)
        elif layer is Layer.OWNED and not holds:
            self.copies.rivals.fall_back(address)

    # --- what we hear -----------------------------------------------------------------------------

    def _hear(self) -> dict[type[PeerMessage], Callable[[Peer, Any], None]]:
        """By the kind of a message, what is done when another worker says it."""
        frames, copies, local = self.frames, self.copies, self._local
        return {
            PlainFrame: frames.take,
            ResponseFrame: frames.take,
            RequestFrame: frames.take,
            AddressAdded: copies.hold,
            AddressRemoved: copies.drop,
            SessionUp: copies.enter,
            SessionDown: copies.end,
            Backpressure: copies.are_behind,
            SessionsAt: copies.are_at,
            SnapshotBegins: copies.begin_snapshot,
            SnapshotEnds: copies.end_snapshot,
            EntriesOwed: self._owes_entries,
            Unwatch: self._unwatched,
            CheckSocket: local.check_socket,
            SocketChecked: local.socket_checked,
            LostFrames: self._lost,
        }

    def _owes_entries(self, peer: Peer, message: EntriesOwed) -> None:
        peer.owes_entries = message.is_owed

    def _unwatched(self, peer: Peer, message: Unwatch) -> None:
        self._names.unwatched(peer, message.names)
        for id_ in message.sessions:
            self.announcements.unwatched(id_, peer.epoch)

    def _lost(self, peer: Peer, message: LostFrames) -> None:
        for id_ in message.sessions:
            with FAULTS.kept_to("session"):
                self._local.missed(id_)

    def peer_down(self, peer: Peer) -> None:
        """A worker is not heard of; its sessions may come back with it."""
        self.copies.resume(peer)
        self._moves.down(peer)
