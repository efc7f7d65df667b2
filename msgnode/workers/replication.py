"""Who listens to what on the other workers: their sessions stand in our routing table, ours in
theirs.

Rules
- A worker tells which sessions it has, and what they hold and have learned, and all of it to a
  worker that is new. What they have subscribed is told to those that send there (interest.py).
- Two workers may give one address to two sessions before they hear of each other. An allocated
  address is settled by the database's unique commit: what a peer says it holds, a session here
  holds no longer. A learned one belongs to the session with the smaller id. So all tables end
  equal, whatever the order of the words.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol

from msgnode.bus.ports import DeliveryResult, Layer, Listener, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS

from . import protocol
from .interest import Interest
from .peer import Peer
from .protocol import (
    AddressAdded,
    AddressRemoved,
    AnyFrame,
    Backpressure,
    CheckSocket,
    CounterReport,
    HolderRequest,
    HolderResponse,
    LostFrames,
    PeerMessage,
    PlainFrame,
    RequestFrame,
    ResponseFrame,
    RpcRequest,
    RpcResponse,
    SessionAddresses,
    SessionDown,
    SessionUp,
    SnapshotBegins,
    SnapshotEnds,
    SocketChecked,
    Subscribers,
    Unwatch,
)
from .remote import RemoteSession
from .transport import PeerTransport

log = logging.getLogger(__name__)


class SessionHandover(Protocol):
    """What is to be done with the words about sessions that change their worker."""

    def heard(self, peer: Peer, message: protocol.AnyMessage) -> None: ...

    def take(self, peer: Peer, session_id: str, message: AnyFrame) -> bool:
        """A frame for a session that is not here; whether it was taken."""
        ...

    def take_response(self, peer: Peer, session_id: str, frame: bytes, response: Response) -> None:
        """A response for a session that is not here."""
        ...

    def taken_over(self, session_id: str) -> None:
        """A peer has a session that we have as well: theirs counts."""
        ...

    def down(self, peer: Peer) -> None: ...


class LocalSessions(Protocol):
    """The sessions of this worker, and what they hold."""

    @property
    def sessions(self) -> Mapping[str, Listener]: ...

    def holdings(self, session_id: str) -> tuple[list[str], list[str], list[str]]:
        """The addresses a session owns, has subscribed, has learned."""
        ...

    def withdraw(self, address: str, session: Listener) -> None:
        """The session does not own the address any more."""
        ...

    def remote_entered(self, session: Listener) -> None:
        """A session of another worker is there, or it speaks for somebody else now."""
        ...

    def remote_left(self, session: Listener) -> None:
        """A session of another worker has ended."""
        ...

    def missed(self, session_id: str) -> None:
        """Frames for the session were lost: tell it."""
        ...

    def respond(self, session: Listener, frame: bytes, response: Response) -> DeliveryResult | None:
        """Give a session a response from another worker; None if it has not asked for it."""
        ...

    def undeliverable(self, frame: bytes) -> None:
        """A frame came for a session that has ended meanwhile."""
        ...

    def said(
        self,
        peer: Peer,
        message: CounterReport | RpcRequest | RpcResponse | HolderRequest | HolderResponse,
    ) -> None:
        """Another worker says what is not about a session."""
        ...

    def check_socket(self, peer: Peer, session_id: str) -> None:
        """Another worker asks whether anybody is behind a session's socket."""
        ...

    def socket_checked(self, session_id: str, outcome: bool | None) -> None:
        """Another worker has found out whether anybody is behind a session's socket."""
        ...


class ArrivalTracer(Protocol):
    """Is told of frames that are traced and come from another worker."""

    def arrived(
        self,
        traceparent: str,
        frame: bytes,
        session: Listener,
        taken: DeliveryResult | None,
        worker: str,
    ) -> None:
        """A session was handed such a frame; `taken` is None for a response it did not ask for."""
        ...


class TableReplicator:
    """One instance per worker. Implements the bus's TableObserver and TransportClient."""

    def __init__(self, table: RoutingTable, transport: PeerTransport, local: LocalSessions) -> None:
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
        self._transport.tell(_enter(session))

    def left(self, session: Listener) -> None:
        self._transport.tell(SessionDown(session.id))

    def changed(
        self,
        layer: Layer,
        address: str,
        session: Listener,
        holds: bool,
        before: Listener | None = None,
    ) -> None:
        if layer is Layer.SUBSCRIBED:
            self.interest.changed(address, session, holds)
            return
        message = AddressAdded if holds else AddressRemoved
        self._transport.tell(message(session.id, layer.value, [address]), len(address))
        if layer is Layer.LEARNED:
            if holds and before is not None:
                self._contest(address, before, session)
            elif not holds:
                self._give_in(address, session)
        elif not holds:
            self._fall_back(address)

    def snapshot(self) -> Iterator[PeerMessage]:
        for probe in tuple(self._table.probes.values()):
            if probe.is_here:
                yield _enter(probe)
                yield SessionAddresses(probe.id, [], [], [])
        for id_, session in tuple(self._local.sessions.items()):
            if id_ in self._local.sessions and session.runtime_url:
                yield _enter(session)
                yield SessionAddresses(id_, *self._local.holdings(id_))

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
            case SessionAddresses():
                self._holdings(peer, message)
            case SnapshotBegins():
                self._old[peer.epoch] = {
                    session.id for session in self.remotes.values() if session.peer is peer
                }
            case SnapshotEnds():
                for id_ in self._old.pop(peer.epoch, ()):
                    with FAULTS.kept_to("session"):
                        self._leave(id_, peer)
            case (
                CounterReport() | RpcRequest() | RpcResponse() | HolderRequest() | HolderResponse()
            ):
                self._local.said(peer, message)
            case Subscribers() | Unwatch():
                self.interest.heard(peer, message)
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

    def announce(self, session: Listener) -> None:
        """Tell everybody of a session that has come to this worker, and of all it holds."""
        holdings = SessionAddresses(session.id, *self._local.holdings(session.id))
        self._transport.tell(_enter(session))
        self._transport.tell(holdings, sum(map(len, (*holdings.owned, *holdings.subscribed))))

    def forget_learned(self, session: RemoteSession) -> None:
        """What a session has learned ends with its worker."""
        for address in tuple(session.learned):
            self._unlearn(session, address)

    def forget(self, peer: Peer) -> None:
        """A worker has ended for good: nobody listens there."""
        for session in [each for each in self.remotes.values() if each.peer is peer]:
            with FAULTS.kept_to("session"):
                self.remove(session)
        self.interest.forget(peer.epoch)
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
            if not self.moves.take(peer, id_, message) and len(message.sessions) == 1:
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
            session = self.remotes[message.session] = RemoteSession(message.session, peer)
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

    def _leave(self, id_: str, peer: Peer) -> None:
        session = self.remotes.get(id_)
        if session is not None and session.peer is peer:
            self.remove(session)

    def _hold(self, peer: Peer, message: AddressAdded) -> None:
        session = self.remotes.get(message.session)
        if session is not None and message.layer == Layer.SUBSCRIBED.value:
            for address in filter(self.interest.accepts, message.addresses):
                self.interest.add(session, address)  # also if its move here is not known yet
            return
        if session is None or session.peer is not peer:
            return
        for address in message.addresses:
            if message.layer == Layer.OWNED.value:
                self._own(session, address)
            else:
                self._learn(session, address)

    def _drop(self, peer: Peer, message: AddressRemoved) -> None:
        session = self.remotes.get(message.session)
        if session is None or session.peer is not peer:
            return
        for address in message.addresses:
            if message.layer == Layer.OWNED.value:
                self._disown(session, address)
            elif message.layer == Layer.SUBSCRIBED.value:
                session.subscribed.discard(address)
                self._table.unsubscribe(address, session)
            else:
                self._unlearn(session, address)

    def _holdings(self, peer: Peer, message: SessionAddresses) -> None:
        session = self.remotes.get(message.session)
        if session is None or session.peer is not peer:
            return
        self._old.get(peer.epoch, set()).discard(message.session)
        kept = set(filter(self.interest.accepts, message.subscribed))
        for address in session.owned - set(message.owned):
            self._disown(session, address)
        for address in session.subscribed - kept:
            self._table.unsubscribe(address, session)
        session.subscribed = kept
        for address in session.learned - set(message.learned):
            self._unlearn(session, address)
        for address in message.owned:
            self._own(session, address)
        for address in kept:
            self._table.subscribe(address, session)
        for address in message.learned:
            self._learn(session, address)

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


def _enter(session: Listener) -> SessionUp:
    return SessionUp(
        session.id,
        session.runtime_url,
        session.token_hash,
        session.bound_at,
        session.is_connected,
        session.speaker,
    )
