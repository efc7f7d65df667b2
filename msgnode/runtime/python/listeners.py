"""Who listens to an address of a bus: plain functions, and coroutine functions in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from .messages import Message

Listener = Callable[[Message], None] | Callable[[Message], Awaitable[None]]

MAX_LISTENER_QUEUED = 1_000  # messages that wait for one coroutine listener


class Listened(Protocol):
    """A bus as its listeners need it."""

    def removed(self, listening: Listening) -> None:
        """A listener was removed."""

    def undeliverable(self, message: Message, code: int, text: str) -> None:
        """A message could not be given to its listener: its sender is answered."""

    def report(
        self, reason: str, text: str, message: Message | None, error: BaseException | None
    ) -> None:
        """Something went wrong that has nobody else to tell."""


class Listening:
    """A listener on an address, until remove()."""

    __slots__ = ("_bus", "address", "call", "is_removed")

    def __init__(self, bus: Listened, address: str, call: Callable[[Message], object]) -> None:
        self._bus = bus
        self.address = address
        self.call = call
        self.is_removed = False

    def remove(self) -> None:
        """Listen no more, at once. Once is enough; again does nothing."""
        self._bus.removed(self)


class Binding(NamedTuple):
    """Two buses joined at two addresses, until unbind()."""

    this_listener: Listening
    target_listener: Listening

    def unbind(self) -> None:
        """Join them no more."""
        self.this_listener.remove()
        self.target_listener.remove()


class InOrder:
    """A coroutine listener: one message after the other, in a task that ends when none waits."""

    def __init__(self, bus: Listened, listener: Callable[[Message], Awaitable[None]]) -> None:
        self._bus = bus
        self._listener = listener
        self._queue: deque[Message] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, message: Message) -> None:
        """Queue a message for the listener."""
        if len(self._queue) >= MAX_LISTENER_QUEUED:
            text = (
                f"More than {MAX_LISTENER_QUEUED} messages wait for a listener of {message['to']}."
            )
            self._bus.undeliverable(message, 503, text)
            return
        self._queue.append(message)
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._queue:
                message = self._queue.popleft()
                try:
                    await self._listener(message)
                except Exception as error:
                    text = f"A listener of {message.get('to')} raised."
                    self._bus.report("listener.failed", text, message, error)
        finally:
            self._task = None
