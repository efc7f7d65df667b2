"""Processes what a stub posts: its status, responses to subscriptions, and messages of its peer.

Messages are carried if the exchange admits them. The host is told of refused ones, and of a stub
that sends more than the node can carry.
"""

from __future__ import annotations

from typing import Protocol

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame

from . import stub_status
from .held_subscriptions import HeldSubscriptions
from .peer_exchange import PeerExchange, Refused
from .peer_session import KeptSession
from .peer_stub import PeerStub
from .stub_status import GAP, StubStatus

MAX_HELD = 1_000
"""Most frames of a peer that wait while the node is busy; a stub that sends more is ended."""


class Host(Protocol):
    """The part that serves the peer."""

    def status(self, status: StubStatus) -> None:
        """Process a status report of the stub."""
        ...

    def refused(self, why: str) -> None:
        """Note a refused message."""
        ...

    def flooded(self) -> None:
        """Handle a stub that sends more than the node can carry."""
        ...


class StubPosts:
    """One instance per peer that this worker serves.

    Args:
        peer: the peer and its stub.
        exchange: checks messages of the peer.
        subscriptions: the subscriptions there.
        session: carries admitted messages.
        host: is told of everything else.
    """

    def __init__(
        self,
        peer: PeerStub,
        exchange: PeerExchange,
        subscriptions: HeldSubscriptions,
        session: KeptSession,
        host: Host,
    ) -> None:
        self._stub_status = f"{peer.stub_url}/status"
        self._peer_status = f"{peer.runtime_url}/status"
        self._exchange = exchange
        self._subscriptions = subscriptions
        self._session = session
        self._host = host
        self._held = 0  # consecutive frames that had to wait for the node

    def take(self, text: bytes) -> None:
        """Process what the stub has posted."""
        try:
            message = messages.parse(text)
        except InvalidFrame as error:
            status = stub_status.read_without_id(text, self._stub_status)
            if status is None:
                self._host.refused(f"what it posted is no message: {error.description}")
            else:
                self._tell(status)
            return
        if (status := stub_status.read(message, self._stub_status)) is not None:
            self._tell(status)
            return
        if self._subscriptions.take(message):
            return
        if (of_peer := stub_status.read(message, self._peer_status)) is not None:
            if of_peer.value == GAP:
                self._subscriptions.suspect()
            return
        try:
            frame = self._exchange.taken_in(message)
        except Refused as refusal:
            self._host.refused(str(refusal))
            return
        self._held = self._held + 1 if self._session.is_held_back else 0
        if self._held > MAX_HELD:
            self._host.flooded()
            return
        self._session.say(frame)

    def _tell(self, status: StubStatus) -> None:
        if status.value == GAP:
            self._subscriptions.suspect()
        else:
            self._host.status(status)
