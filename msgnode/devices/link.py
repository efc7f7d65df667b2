"""The Link of a device: what a session writes is kept as events, or answers a request that waits.

A response to a request that is still waiting for it goes there, and nowhere else: each message
reaches the device once. Everything else is an event of the downstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage
from msgnode.core.messages import Message
from msgnode.sessions.rules import CloseCode

from .events import EventBuffer


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


class DeviceLink:
    """Implements sessions' Link.

    `on_news` is called when there is something for the downstream, `on_closed` when the session's
    side has closed the link. While `refusals` is a list, what is written goes there.
    """

    unsent_bytes = 0
    """Nothing besides what the buffer has counted itself."""

    def __init__(self, buffer: EventBuffer, high_water: int) -> None:
        self.buffer = buffer
        self.closed: Closed | None = None
        self.is_paused = buffer.unsent_bytes > high_water
        self.refusals: list[bytes] | None = None
        self.on_pause: Callable[[], None] = _nothing
        self.on_resume: Callable[[], None] = _nothing
        self.on_news: Callable[[], None] = _nothing
        self.on_closed: Callable[[], None] = _nothing
        self._high_water = high_water
        self._waiting: dict[RequestKey, list[asyncio.Future[Message]]] = {}

    def write(self, frame: bytes) -> None:
        if self.refusals is not None:
            self.refusals.append(frame)
            return
        if self._waiting and self._answers(frame):
            return
        self.buffer.append(frame)
        self.on_news()
        if not self.is_paused and self.buffer.unsent_bytes > self._high_water:
            self.is_paused = True
            self.on_pause()

    def close(self, code: int, reason: str) -> None:
        if self.closed is None:
            self.closed = Closed(code, reason)
            waiting, self._waiting = self._waiting, {}
            for each in chain.from_iterable(waiting.values()):
                each.cancel()
            self.on_closed()
            self.on_news()

    def ping(self, answered: Callable[[], None]) -> bool:
        """A device is asked nothing: how long it may be silent is a rule of its own."""
        return False

    def drop(self) -> None:
        self.buffer.give_up()
        self.close(CloseCode.TOO_SLOW, "too slow: messages were lost")

    def pause_reading(self) -> None:
        """Nothing to do: whoever posts waits until the connection is ready."""

    def resume_reading(self) -> None:
        """Nothing to do, as above."""

    def taken(self) -> None:
        """The downstream has taken events: let the session write on if there is room again."""
        if self.is_paused and self.buffer.unsent_bytes <= self._high_water // 2:
            self.is_paused = False
            self.on_resume()

    def expect(self, key: RequestKey) -> asyncio.Future[Message]:
        """Wait for the response to a request; of several of one id the first is answered first."""
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(waiting)
        return waiting

    def forget(self, key: RequestKey, waiting: asyncio.Future[Message]) -> None:
        """Nobody waits any more: the response is an event."""
        others = [each for each in self._waiting.get(key, ()) if each is not waiting]
        if others:
            self._waiting[key] = others
        else:
            self._waiting.pop(key, None)

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


def _nothing() -> None:
    return None
