"""Replicates changes of this routing table to the workers that watch it.

A worker tells the watchers of a name (interest.py) which of its sessions are there, and every
change; workers that were told of a session are told what becomes of it. Other sessions are not
announced.

What the others announce makes copies of their sessions here:
- A session of another worker is in the table only with names that are watched here (interest.py),
  and is removed with the last of them.
- If two workers have the same session for a moment, the one keeps it that its runtime used last.
- If sessions of two workers hold an address for a moment, remote_sessions.py decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgnode.bus.ports import Layer, Listener
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS

from .announcements import Announcements, as_up
from .interest import Interest, InterestRenewal
from .linked_worker import LinkedWorker
from .own_names import HOLDS, LISTENS, SPEAKS, OwnNames
from .ports import LocalSessions
from .protocol import (
    AddressAdded,
    AddressRemoved,
    Backpressure,
    EntriesOwed,
    LinkMessage,
    SessionDown,
    SessionsAt,
    SessionUp,
    SnapshotBegins,
    SnapshotEnds,
    Unwatch,
)
from .remote_sessions import ContestedAddresses, RemoteSession, RemoteSessions, is_probe
from .transport import LinkTransport

_KINDS = {Layer.OWNED: HOLDS, Layer.SUBSCRIBED: LISTENS, Layer.LEARNED: SPEAKS}


class TableReplicator:
    """One instance per worker; the bus's TableObserver."""

    def __init__(
        self,
        table: RoutingTable,
        transport: LinkTransport,
        names: OwnNames,
        announcements: Announcements,
        contested: ContestedAddresses,
    ) -> None:
        self._table = table
        self._transport = transport
        self._names = names
        self._announcements = announcements
        self._contested = contested
        transport.handlers.update({EntriesOwed: self._owes_entries, Unwatch: self._unwatched})
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
                self._contested.contest(address, before, session)
            elif not holds:
                self._contested.give_in(address, session)
        elif layer is Layer.OWNED and not holds:
            self._contested.fall_back(address)

    def _owes_entries(self, other: LinkedWorker, message: EntriesOwed) -> None:
        other.owes_entries = message.is_owed

    def _unwatched(self, other: LinkedWorker, message: Unwatch) -> None:
        self._names.unwatched(other, message.names)
        for id_ in message.sessions:
            self._announcements.unwatched(id_, other.epoch)


# --- what others announce -------------------------------------------------------------------------
class SessionCopies:
    """One instance per worker.

    Attributes:
        on_new_stream: are told of a worker whose link to this one begins anew; what it had said
            and is not here is lost.
    """

    def __init__(
        self,
        transport: LinkTransport,
        local: LocalSessions,
        names: OwnNames,
        interest: Interest,
        renewal: InterestRenewal,
        remotes: RemoteSessions,
        hand_off: Callable[[str, LinkedWorker], object],
    ) -> None:
        self.on_new_stream: list[Callable[[LinkedWorker], None]] = []
        self._epoch = transport.me.epoch
        self._local = local
        self._names = names
        self._interest = interest
        self._renewal = renewal
        self._remotes = remotes
        self._hand_off = hand_off
        self._old: dict[str, set[str]] = {}  # epoch -> sessions its snapshot has not named yet
        transport.on_down.append(remotes.resume)
        transport.handlers.update(self._hear())

    def _hear(self) -> dict[type[LinkMessage], Callable[[LinkedWorker, Any], None]]:
        """The handlers of messages from other workers, by type."""
        return {
            AddressAdded: self._hold,
            AddressRemoved: self._drop,
            SessionUp: self._enter,
            SessionDown: self._end,
            Backpressure: self._are_behind,
            SessionsAt: self._are_at,
            SnapshotBegins: self._begin_snapshot,
            SnapshotEnds: self._end_snapshot,
        }

    # --- what a worker says of its sessions -------------------------------------------------------

    def _begin_snapshot(self, other: LinkedWorker, _: SnapshotBegins) -> None:
        """Begin a worker's snapshot of what is watched here."""
        for told in self.on_new_stream:
            told(other)
        self._remotes.resume(other)  # that one has caught up may be lost; who lags is said again
        self._old[other.epoch] = {each.id for each in self._remotes.of(other)}

    def _end_snapshot(self, other: LinkedWorker, _: SnapshotEnds) -> None:
        """End a worker's snapshot: sessions it has not named have ended."""
        for id_ in self._old.pop(other.epoch, ()):
            with FAULTS.kept_to("session"):
                self._leave(id_, other)

    def _enter(self, other: LinkedWorker, message: SessionUp) -> None:
        """Add or update a session of another worker."""
        if self._local.is_moving(message.session):
            return  # the handover decides
        ours = self._local.sessions.get(message.session)
        if ours is not None:  # the link broke while it moved, or it was taken over
            if (ours.bound_at, self._epoch) > (message.bound_at, other.epoch):
                self._local.reassert(ours)
                other.out.put(as_up(ours))
                return
            self._local.give_up(ours, other.name, other.epoch)
            self._hand_off(message.session, other)
        session = self._remotes.by_id.get(message.session)
        if session is None:
            if not message.is_new:
                return  # this worker no longer watches it, and has said so
            session = self._remotes.begin(message.session, other)
        self._old.get(other.epoch, set()).discard(message.session)
        session.worker = other
        session.runtime_url = message.runtime_url
        session.token_hash = message.token_hash
        session.is_connected = message.is_connected
        session.bound_at = message.bound_at
        session.speaker = message.speaker
        self._remotes.enter(session)
        if not is_probe(session):
            self._names.met(other, session.runtime_url)

    def _end(self, other: LinkedWorker, message: SessionDown) -> None:
        """Remove a session that has ended, unless it has moved from that worker meanwhile."""
        self._leave(message.session, other)

    def _leave(self, id_: str, other: LinkedWorker) -> None:
        session = self._remotes.by_id.get(id_)
        if session is not None and session.worker is other:
            self._remotes.remove(session)

    def _hold(self, other: LinkedWorker, message: AddressAdded) -> None:
        """Add addresses of a session."""
        session = self._remotes.by_id.get(message.session)
        for name in message.addresses:
            if not self._interest.accepts(name):
                other.out.put(Unwatch([name], []))
                self._drop_unneeded(other, [session] if session is not None else [])
            elif session is None:
                self._renewal.ask_again(name)
            elif session.worker is other or message.layer == Layer.SUBSCRIBED.value:
                self._put_at(session, Layer(message.layer), name)

    def _drop(self, other: LinkedWorker, message: AddressRemoved) -> None:
        """Remove addresses of a session."""
        session = self._remotes.by_id.get(message.session)
        if session is None or session.worker is not other:
            return
        for name in message.addresses:
            self._remotes.take_from(session, Layer(message.layer), name)
        self._drop_unneeded(other, [session])

    def _are_at(self, other: LinkedWorker, message: SessionsAt) -> None:
        """Set the sessions of a worker at a name."""
        name = message.name
        if not self._interest.accepts(name):
            dropped = self._interest.evict(name).get(other, [])
            other.out.put(Unwatch([name], dropped))
            return
        gone: list[RemoteSession] = []
        named = (message.owned, message.subscribed, message.learned)
        for session in [each for each in self._remotes.at(name) if each.worker is other]:
            for layer, ids in zip(Layer, named, strict=True):
                if session.id not in ids:
                    self._remotes.take_from(session, layer, name)
                    gone.append(session)
        self._drop_unneeded(other, gone)
        for layer, ids in zip(Layer, named, strict=True):
            for id_ in ids:
                remote = self._remotes.by_id.get(id_)
                if remote is not None:
                    self._put_at(remote, layer, name)
                elif id_ not in self._local.sessions and not self._local.is_moving(id_):
                    self._renewal.ask_again(name)
        if any(named):
            self._names.met(other, name)

    def _are_behind(self, other: LinkedWorker, message: Backpressure) -> None:
        """Note that a session lags, or no longer does."""
        session = self._remotes.by_id.get(message.session)
        if session is None:
            return
        if message.is_behind:
            session.is_behind = True
        else:
            session.resume()

    # --- what goes --------------------------------------------------------------------------------

    def forget(self, other: LinkedWorker) -> None:
        """Remove all sessions of a worker that has ended."""
        for session in self._remotes.of(other):
            names = (session.runtime_url, *session.owned, *session.subscribed, *session.learned)
            with FAULTS.kept_to("session"):
                self._remotes.remove(session)
            self._interest.doubt(names)  # its new worker may not have said so yet
        self._names.forget(other.epoch)
        self._old.pop(other.epoch, None)

    def _drop_unneeded(self, other: LinkedWorker, sessions: Iterable[RemoteSession]) -> None:
        """Remove those of these sessions that are at no other name."""
        dropped = []
        for session in dict.fromkeys(sessions):
            if not self._interest.needs(session):
                dropped.append(session.id)
                self._remotes.remove(session)
        if dropped:
            other.out.put(Unwatch([], dropped))

    def _put_at(self, session: RemoteSession, layer: Layer, name: str) -> None:
        """Add a session at a name in a layer of the table."""
        loser = self._remotes.put_at(session, layer, name)
        if loser is not None:
            self._local.withdraw(name, loser)
