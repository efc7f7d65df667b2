"""What a stub posts: what it says of itself, answers to subscriptions, and messages of its peer.

The last are carried if the exchange takes them in. The host is told what was not, and of a stub
that says more than the node can carry.
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
"""Frames of a peer that may wait because the node is held back; a stub that says more is ended."""


class Host(Protocol):
    """Whoever serves the peer."""

    def status(self, status: StubStatus) -> None:
        """The stub says how it is."""
        ...

    def refused(self, why: str) -> None:
        """Something that it has posted is not carried."""
        ...

    def flooded(self) -> None:
        """More came than the node can carry."""
        ...


class StubPosts:
    """One instance per peer that this worker serves.

    Args:
        peer: and its stub.
        exchange: takes in messages of the peer.
        subscriptions: there.
        session: carries what is taken in.
        host: is told of the rest.
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
        self._held = 0  # frames in a row that had to wait for the node

    def take(self, text: bytes) -> None:
        """Take what the stub has posted."""
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
