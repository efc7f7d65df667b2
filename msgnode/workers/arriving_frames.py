"""Frames from other workers: delivered to sessions here, or forwarded to where they have moved.

Rules
- A frame for a session that is no longer here is answered, and its sender's worker is told that the
  session is gone.
- A session that lags pauses the senders of all workers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgnode.bus.ports import DeliveryResult, Listener, Response
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS

from .handover import Handover
from .peer import Peer
from .ports import ArrivalTracer, LocalSessions
from .protocol import (
    AnyFrame,
    Backpressure,
    LostFrames,
    PeerMessage,
    PlainFrame,
    RequestFrame,
    ResponseFrame,
    SessionDown,
)
from .remote import path_of
from .transport import PeerTransport


class ArrivingFrames:
    """One instance per worker."""

    def __init__(
        self,
        table: RoutingTable,
        transport: PeerTransport,
        local: LocalSessions,
        moves: Handover,
    ) -> None:
        self._tracer: ArrivalTracer | None = None
        self._table = table
        self._transport = transport
        self._local = local
        self._moves = moves
        self._behind: set[str] = set()
        transport.heard_by.update(self._hear())

    def _hear(self) -> dict[type[PeerMessage], Callable[[Peer, Any], None]]:
        """The handlers of messages from other workers, by type."""
        return {
            PlainFrame: self._take,
            ResponseFrame: self._take,
            RequestFrame: self._take,
            LostFrames: self._lost,
        }

    def watch(self, tracer: ArrivalTracer) -> None:
        """Set the observer of frames that another worker traces."""
        self._tracer = tracer

    def _take(self, peer: Peer, message: AnyFrame) -> None:
        """Deliver a frame for sessions of this worker."""
        if isinstance(message, RequestFrame):
            answerer = message.sessions[0] if len(message.sessions) == 1 else ""
            self._table.return_paths.remember(path_of(message), answerer)
        for id_ in message.sessions:
            session = self._local.sessions.get(id_) or self._own_probe(id_)
            try:
                self._hand(id_, session, peer, message)
            except Exception as error:
                FAULTS.note("listener", error)
                if session is not None:
                    session.missed()

    def _lost(self, peer: Peer, message: LostFrames) -> None:
        for id_ in message.sessions:
            with FAULTS.kept_to("session"):
                if id_ in self._local.sessions or not self._moves.missed(peer, id_):
                    self._local.missed(id_)

    def _own_probe(self, id_: str) -> Listener | None:
        for probe in self._table.probes.values():
            if probe.is_here and probe.id == id_:
                return probe
        return None

    def _hand(self, id_: str, session: Listener | None, peer: Peer, message: AnyFrame) -> None:
        if isinstance(message, ResponseFrame):
            response = Response(message.to, message.id, message.responder)
            if session is None:
                self._moves.take_response(peer, id_, message.frame, response)
                return
            taken = self._local.respond(session, message.frame, response)
        elif session is None:
            if not self._moves.take(peer, id_, message):
                peer.out.put(SessionDown(id_))
                if len(message.sessions) == 1:
                    self._local.undeliverable(message.frame)
            return
        else:
            taken = session.deliver(message.frame)
        if message.trace and self._tracer is not None:
            self._tracer.arrived(message.trace, message.frame, session, taken, peer.name)
        if taken is DeliveryResult.BEHIND and id_ not in self._behind:
            self._behind.add(id_)
            self._transport.tell(Backpressure(id_, True))
            session.when_writable(partial(self._caught_up, id_))

    def _caught_up(self, id_: str) -> None:
        self._behind.discard(id_)
        self._transport.tell(Backpressure(id_, False))
