"""The session of a peer: it represents the node of a foreign domain, like a runtime's.

Its frames do not go to a socket but to whoever serves the peer; its speaker is foreign, and without
an identity until one in a message was verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import NodeError
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity, Origin, Speaker
from msgnode.core.messages import Message
from msgnode.sessions.frame_connection import (
    AnsweringLink,
    ConnectionOpener,
    FrameConnection,
    nothing,
)
from msgnode.sessions.rules import PEER, CloseCode

VouchedFor = Callable[[Message], Identity | None]

MAX_SPEAKERS = 1_000
"""Most senders of a peer that are remembered, each with the identity that it vouches for."""
_CLOSE_SECONDS = 1.0
_SOURCE = "peer:"


class PeerOutlet(AnsweringLink):
    """The link of such a session. `on_frame` is called with each frame for the peer.

    `on_answer` is called before that, if the frame is an answer of the node itself. `vouched_for`
    returns the identity of a message's sender, if the peer is trusted to say it.
    """

    vouched_for: VouchedFor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.on_frame: Callable[[bytes], None] = _nobody
        self.on_answer: Callable[[bytes], None] = _nobody

    def write(self, frame: bytes) -> None:
        """Pass a frame to whoever serves the peer, except for answers to the node's own frames."""
        if (self._waiting or self.refusals is not None) and self._is_taken(frame):
            return
        try:
            self.on_frame(frame)
        except Exception as error:  # else the session ends, which has the messages of all others
            FAULTS.note("peer", error)

    def close(self, code: int, reason: str) -> None:
        """Note the code with which the node has ended the session."""
        self._note_closed(code, reason)

    def drop(self) -> None:
        """End it as one that reads too slowly."""
        self.close(CloseCode.TOO_SLOW, "too slow: messages were lost")


class PeerConnection(FrameConnection):
    """The connection of such a session."""

    handshake = PEER
    link: PeerOutlet

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        domain = self._anonymous.remote_address.removeprefix(_SOURCE)
        self._anonymous = replace(self._anonymous, origin=Origin.FOREIGN, peer=domain)

    def put(self, frame: bytes) -> None:
        """Answer the peer, for the node itself."""
        self.link.on_answer(frame)
        super().put(frame)


class VouchingConnection(PeerConnection):
    """The same of a peer that is trusted to say whose its messages are."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known: Speaker | None = None
        self._speakers: dict[Identity, Speaker] = {}

    def _carry_one(self, frame: bytes, message: Message | None = None) -> None:
        """Carry a frame as that of the sender for whom the peer vouches."""
        session, vouched_for = self.session, self.link.vouched_for
        if message is None:
            with suppress(InvalidFrame):  # answered as such
                message = messages.parse(frame)
        identity = vouched_for(message) if message is not None and vouched_for else None
        if session is None or identity is None:
            super()._carry_one(frame, message)
            return
        known = session.speaker
        session.speaker = self._speaker(known, identity)
        try:
            super()._carry_one(frame, message and (message.said_by_nobody() or message))
        finally:
            session.speaker = known

    def _speaker(self, known: Speaker, identity: Identity) -> Speaker:
        """The speaker with an identity: the same each time, so that decisions are repeated."""
        if known is not self._known or len(self._speakers) >= MAX_SPEAKERS:
            self._known, self._speakers = known, {}
        speaker = self._speakers.get(identity)
        if speaker is None:
            speaker = self._speakers[identity] = replace(known, identity=identity)
        return speaker


class PeerSessions(ConnectionOpener):
    """Opens sessions of peers at this worker."""

    def at_rate(self, messages_per_second: float) -> PeerSessions:
        """The same for a peer that may send so many messages a second."""
        settings = self._parts.settings
        flow = replace(settings.flow, messages_per_second=messages_per_second)
        return PeerSessions(replace(self._parts, settings=replace(settings, flow=flow)))

    async def open(self, domain: str, stub_url: str, outlet: PeerOutlet) -> PeerConnection:
        """Open it on a connection that counts towards the limits of the peer's domain."""
        kind = PeerConnection if outlet.vouched_for is None else VouchingConnection
        connection = self._made(kind, outlet, _source(domain))
        await connection.begin_session(stub_url)
        self._limits.add(connection, _source(domain))
        return connection

    async def close(self, connection: PeerConnection, domain: str, stub_url: str) -> None:
        """Close the session and its connection, within a second."""
        connection.link.on_frame = connection.link.on_answer = _nobody
        with suppress(NodeError, TimeoutError):  # else it ends after the grace period
            async with asyncio.timeout(_CLOSE_SECONDS):
                await connection.session_frame("close", stub_url)
        self._uncount(connection, _source(domain))
        connection.end(CloseCode.NORMAL, "the peer is served no more")
        connection.lost()


class NamedPeer(Protocol):
    """A peer, as its session needs it.

    Attributes:
        domain: the peer's domain.
        stub_url: the runtime URL of the session.
        vouched_for: returns the identity of a message's sender, if the peer is trusted to say it.
    """

    @property
    def domain(self) -> str: ...  # noqa: D102

    @property
    def stub_url(self) -> str: ...  # noqa: D102

    @property
    def vouched_for(self) -> VouchedFor | None: ...  # noqa: D102


class KeptSession:
    """The session of one peer, opened again whenever it has ended.

    Args:
        opener: opens sessions.
        peer: whose it is.
        on_frame: called with each frame for the peer.
        on_closed: called when the node has closed a session.

    Attributes:
        on_answer: called before that, if the frame is an answer of the node itself.
    """

    def __init__(
        self,
        opener: PeerSessions,
        peer: NamedPeer,
        on_frame: Callable[[bytes], None],
        on_closed: Callable[[], None] = nothing,
    ) -> None:
        self.on_answer: Callable[[bytes], None] = _nobody
        self._on_closed = on_closed
        self._opener = opener
        self._names = peer.domain, peer.stub_url
        self._vouched_for = peer.vouched_for
        self._on_frame = on_frame
        self._connection: PeerConnection | None = None
        self._opened = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether there was a session, and the node has closed it."""
        return self._connection is not None and self._connection.link.closed is not None

    @property
    def is_held_back(self) -> bool:
        """Whether the node has paused the peer."""
        return self._connection is not None and self._connection.is_held_back

    async def open(self) -> None:
        """Ensure that there is a session. Raises NodeError."""
        if self._connection is not None and not self.has_ended:
            return
        await self.close()
        outlet = PeerOutlet()
        outlet.on_frame, outlet.on_answer = self._on_frame, self.on_answer
        outlet.on_closed, outlet.vouched_for = self._on_closed, self._vouched_for
        self._connection = await self._opener.open(*self._names, outlet)
        self._opened.set()

    async def close(self) -> None:
        """End the session, if any; `open` begins another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._opener.close(connection, *self._names)

    def say(self, frame: bytes, message: Message | None = None) -> None:
        """Carry a frame as the peer's; does nothing without a session.

        Args:
            frame: the frame.
            message: what was read in the frame, if it was.
        """
        if self._connection is not None:
            self._connection.frame_received(frame, message)

    async def ready(self) -> None:
        """Wait until there is a session, and the peer is not paused."""
        while self._connection is None or self.has_ended:
            self._opened.clear()
            await self._opened.wait()
        await self._connection.ready()


def _source(domain: str) -> str:
    """The text in place of a network address of a peer."""
    return _SOURCE + domain


def _nobody(frame: bytes) -> None:
    nothing()
