"""The connection of a device: it serves a session as a socket does, across many requests."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, NamedTuple

import msgspec

from msgnode.bus import delivery
from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import GatewayTimeout, NodeError, NotIdentified, TooMany, Unavailable
from msgnode.core.messages import Message
from msgnode.sessions.connection import Connection
from msgnode.sessions.rules import CloseCode

from .answering_link import AnsweringLink, key_of
from .link import DeviceLink

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
        self.frame_received(message.frame)
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


class DeviceConnection(FrameConnection):
    """`active_at` is when the device was last active, by the monotonic clock."""

    handshake = "device"
    link: DeviceLink

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.active_at = time.monotonic()


def read(frame: bytes) -> Message:
    """Parse a message of a device. Raises InvalidFrame."""
    message = messages.parse(frame)
    if message.recipients[0] == SESSION_ADDRESS:
        raise InvalidFrame("Sessions are opened and closed at /device/v1/sessions, not by message.")
    return message
