"""A link that passes a response to whoever waits for it, instead of delivering it as a message.

Each message reaches the device once: as the answer to a request, or through the link.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage
from msgnode.core.messages import Message


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
