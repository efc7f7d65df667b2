"""Replicates changes of this routing table to the workers that watch it.

A worker tells the watchers of a name (interest.py) which of its sessions are there, and every
change; workers that were told of a session are told what becomes of it. Other sessions are not
announced. copies.py processes what the others announce.
"""

from __future__ import annotations

from msgnode.bus.ports import Layer, Listener
from msgnode.bus.table import RoutingTable

from .announcements import Announcements, as_up
from .own_names import HOLDS, LISTENS, SPEAKS, OwnNames
from .peer import Peer
from .protocol import AddressAdded, AddressRemoved, EntriesOwed, SessionDown, Unwatch
from .remote_sessions import Rivals, is_probe
from .transport import PeerTransport

_KINDS = {Layer.OWNED: HOLDS, Layer.SUBSCRIBED: LISTENS, Layer.LEARNED: SPEAKS}


class TableReplicator:
    """One instance per worker; the bus's TableObserver."""

    def __init__(
        self,
        table: RoutingTable,
        transport: PeerTransport,
        names: OwnNames,
        announcements: Announcements,
        rivals: Rivals,
    ) -> None:
        self._table = table
        self._transport = transport
        self._names = names
        self._announcements = announcements
        self._rivals = rivals
        transport.heard_by.update({EntriesOwed: self._owes_entries, Unwatch: self._unwatched})
        table.observe(self)

    def entered(self, session: Listener) -> None:
        """Announce a session of this worker that is new or has changed."""
        if is_probe(session):
            self._transport.tell(as_up(session))
        elif self._table.knows(session):
            self._announcements.entered(session, self._names.watchers_of(session.runtime_url))
            self._names.arrived(HOLDS, (session.runtime_url,))

    def left(self, session: Listener) -> None:
        """Announce the end of a session of this worker."""
        if is_probe(session):
            self._transport.tell(SessionDown(session.id))
            return
        self._announcements.left(session)
        self._names.left((session.runtime_url,))

    def changed(
        self,
        layer: Layer,
        address: str,
        session: Listener,
        holds: bool,
        before: Listener | None = None,
    ) -> None:
        """Announce that a session of this worker has gained or lost an address.

        Args:
            layer: the layer of the routing table.
            address: the address.
            session: a session of this worker.
            holds: whether it holds the address now.
            before: the session from which it was learned before.
        """
        told = self._names.watchers_of(address)
        if holds:
            for epoch in told:
                self._announcements.tell_of(session, epoch)
        message = AddressAdded if holds else AddressRemoved
        self._transport.tell_some(told, message(session.id, layer.value, [address]), len(address))
        if holds:
            self._names.arrived(_KINDS[layer], (address,))
        else:
            self._names.left((address,))
        if layer is Layer.LEARNED:
            if holds and before is not None:
                self._rivals.contest(address, before, session)
            elif not holds:
                self._rivals.give_in(address, session)
        elif layer is Layer.OWNED and not holds:
            self._rivals.fall_back(address)

    def _owes_entries(self, peer: Peer, message: EntriesOwed) -> None:
        peer.owes_entries = message.is_owed

    def _unwatched(self, peer: Peer, message: Unwatch) -> None:
        self._names.unwatched(peer, message.names)
        for id_ in message.sessions:
            self._announcements.unwatched(id_, peer.epoch)
