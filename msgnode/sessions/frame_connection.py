"""Connections without a socket: sessions that are served for devices and peers.

An `AnsweringLink` passes a response to whoever waits for it, instead of delivering it as a message:
each message reaches the other side once, as the answer to a request or through the link. A
`FrameConnection` is given its frames one by one, and makes its session frames itself. A
`ConnectionOpener` opens connections within the limits of their source.
"""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec

from msgnode.bus import delivery
from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import (
    BadMessage,
    GatewayTimeout,
    NodeError,
    NotIdentified,
    TooMany,
    Unavailable,
)
from msgnode.core.messages import Message

from .connection import Connection
from .handshake import ConnectionParts
from .rules import CloseCode

SESSION_ADDRESS = "mn:/session"
SESSION_SECONDS = 10.0
"""How long a session frame may take to be answered."""
HELD_SECONDS = 5.0
"""How long a message waits while its sender is held back, as a socket that is not read would."""


class Refused(NodeError):
    """A refusal that came as a response."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code  # type: ignore[misc]  # the answer's


class Carried(NamedTuple):
    """A message that was handed to the pipeline, and its response to come, if it is waited for."""

    message: Message
    response: asyncio.Future[Message] | None

    @property
    def is_answered(self) -> bool:
        """Whether a response can be waited for at all."""
        return delivery.expects_answer(self.message, self.message.recipients[0])


class FrameConnection(Connection):
    """A connection that is given its frames one by one, and makes its session frames itself."""

    link: AnsweringLink

    async def begin_session(self, sender: str, type_: str = "open") -> dict[str, Any]:
        """Open a session, or go on with one by `re-open`; the body of the answer.

        A connection that gets no session ends.

        Raises:
            NotIdentified: the session has ended meanwhile.
            NodeError: a refusal.
        """
        try:
            body = await self.session_frame(type_, sender)
            if self.session is None:
                raise NotIdentified("The session has ended.")
        except BaseException:
            self.end(CloseCode.NORMAL, "no session")
            self.lost()
            raise
        return body

    async def session_frame(self, type_: str, sender: str) -> dict[str, Any]:
        """Have a session frame carried; the body of its answer. Raises NodeError for a refusal."""
        frame = msgspec.json.encode(
            {"id": uuid.uuid4().hex, "type": type_, "from": sender, "to": SESSION_ADDRESS}
        )
        until = asyncio.get_running_loop().time() + SESSION_SECONDS
        carried = await self.carry_through(messages.parse(frame))
        response = await self.response(carried, until)
        if response is None:
            raise GatewayTimeout("The session frame was not answered in time.")
        body = response.fields()
        if body.get("code") != 200:
            raise Refused(int(body.get("code", 500)), str(body.get("description", "")))
        return body

    async def carry_through(
        self, message: Message, expects: bool = True, traceparent: str = ""
    ) -> Carried:
        """Carry a message once the device is not held back; `expects`: and wait for its response.

        `traceparent` is what came with it in a header.

        Raises:
            TooMany: it is for more than HELD_SECONDS.
        """
        await self.let_through()
        response = self.link.expect(key_of(message)) if expects else None
        self.traceparent = traceparent
        self.frame_received(message.frame, message)
        self.traceparent = ""
        return Carried(message, response)

    async def response(self, carried: Carried, until: float) -> Message | None:
        """The response to a message, waited for until a moment of the event loop's clock.

        Returns:
            None if none came by then, or none will: what comes later is an event.
        """
        waiting = carried.response
        if waiting is None:
            return None
        try:
            if not waiting.done() and carried.is_answered:
                async with asyncio.timeout_at(until):
                    return await waiting
            return waiting.result() if waiting.done() and not waiting.cancelled() else None
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            if self.link.closed is None:
                raise
            raise Unavailable("The session has ended or moved.") from None
        finally:
            self.link.forget(key_of(carried.message), waiting)

    async def carry_invalid(self, frame: bytes, fault: InvalidFrame) -> InvalidFrame:
        """Carry an invalid frame, so that it is recorded; return what is wrong with it."""
        await self.let_through()
        self.link.refusals = []
        try:
            self.frame_received(frame)
        finally:
            self.link.refusals = None
        return fault

    async def let_through(self) -> None:
        """Wait until the device is not held back (see flow control).

        Raises:
            TooMany: it is for more than HELD_SECONDS.
        """
        try:
            async with asyncio.timeout(HELD_SECONDS):
                await self.ready()
        except TimeoutError:
            raise TooMany("The device exceeds its rate limit: its messages wait.") from None


class Closed(NamedTuple):
    """Why a link was closed: a close code of the WebSocket handshake, and words."""

    code: int
    reason: str


class RequestKey(NamedTuple):
    """What a response names of its request."""

    id: str
    sender: str


def key_of(message: Message) -> RequestKey:
    """What the response to a message will name."""
    return RequestKey(message.id_key, message.sender)


def is_final(response: Message) -> bool:
    """Whether no further response follows this one; its code is whatever its sender wrote."""
    try:
        code = response.fields().get("code")
    except BadMessage:
        return True
    return not (isinstance(code, int) and code < 200)


class AnsweringLink(ABC):
    """The base of the devices' links. Implements sessions' Link.

    `on_closed` is called when the session's side has closed the link. While `refusals` is a list,
    it collects what is written.
    """

    unsent_bytes = 0
    is_all_received = True  # what a device has not confirmed is given back to its session

    def __init__(self) -> None:
        self.closed: Closed | None = None
        self.is_paused = False
        self.refusals: list[bytes] | None = None
        self.on_pause: Callable[[], None] = nothing
        self.on_resume: Callable[[], None] = nothing
        self.on_closed: Callable[[], None] = nothing
        self._waiting: dict[RequestKey, list[asyncio.Future[Message]]] = {}

    @abstractmethod
    def write(self, frame: bytes) -> None:
        """Give the device a frame."""

    @abstractmethod
    def close(self, code: int, reason: str) -> None:
        """End the link; `code` is that of a WebSocket."""

    @abstractmethod
    def drop(self) -> None:
        """End the link of a device that is too slow, with what it has not read."""

    def ping(self, answered: Callable[[], None]) -> bool:
        """Return False: devices are not pinged; their idle time has a limit of its own."""
        return False

    def pause_reading(self) -> None:  # noqa: B027
        """Do nothing: the caller with frames waits until the connection is ready."""

    def resume_reading(self) -> None:  # noqa: B027
        """Nothing to do, as above."""

    def expect(self, key: RequestKey) -> asyncio.Future[Message]:
        """Wait for the response to a request; of several of one id the first is answered first."""
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(waiting)
        return waiting

    def forget(self, key: RequestKey, waiting: asyncio.Future[Message]) -> None:
        """Stop waiting: the response is delivered as any frame."""
        others = [each for each in self._waiting.get(key, ()) if each is not waiting]
        if others:
            self._waiting[key] = others
        else:
            self._waiting.pop(key, None)

    def _is_taken(self, frame: bytes) -> bool:
        """Whether a frame is a refusal being collected, or a response that somebody waits for."""
        if self.refusals is not None:
            self.refusals.append(frame)
            return True
        return bool(self._waiting) and self._answers(frame)

    def _note_closed(self, code: int, reason: str) -> bool:
        """Close it for waiters; return whether it was open until now."""
        if self.closed is not None:
            return False
        self.closed = Closed(code, reason)
        waiting, self._waiting = self._waiting, {}
        for each in chain.from_iterable(waiting.values()):
            each.cancel()
        self.on_closed()
        return True

    def _answers(self, frame: bytes) -> bool:
        """Hand over a frame that is the response to a request that waits; whether it is one."""
        try:
            message = messages.parse(frame)
        except InvalidFrame:
            return False
        if not message.is_response or not is_final(message):
            return False
        for waiting in self._waiting.get(RequestKey(message.id_key, message.recipients[0]), ()):
            if not waiting.done():
                waiting.set_result(message)
                return True
        return False


def nothing() -> None:
    """Do nothing."""


Made = TypeVar("Made", bound=FrameConnection)


class ConnectionOpener:
    """What those have in common that open sessions for others; one instance per worker."""

    def __init__(self, parts: ConnectionParts) -> None:
        self._parts = parts
        self._limits = parts.sockets

    def _made(self, kind: type[Made], link: AnsweringLink, source: str) -> Made:
        """A connection, not counted yet. Raises NodeError if there may not be one more."""
        self._limits.check(source)
        return self._parts.connection(kind, link, source)

    def _uncount(self, connection: FrameConnection, source: str) -> None:
        if connection in self._limits.connections:
            self._limits.remove(connection, source)
