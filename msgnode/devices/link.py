"""The connection of a device over HTTP: it serves a session as a socket does, across many requests.

What a session writes is an event of the downstream; a response to a request that is still waiting
for it goes there (sessions/frame_connection.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.messages import Message
from msgnode.sessions.frame_connection import (
    SESSION_ADDRESS,
    AnsweringLink,
    FrameConnection,
    nothing,
)
from msgnode.sessions.rules import CloseCode

from .events import EventBuffer


class DeviceLink(AnsweringLink):
    """`on_news` is called when there is something for the downstream."""

    unsent_bytes = 0  # besides what the buffer has counted itself

    def __init__(self, buffer: EventBuffer, high_water: int) -> None:
        super().__init__()
        self.buffer = buffer
        self.is_paused = buffer.unsent_bytes > high_water
        self.on_news: Callable[[], None] = nothing
        self._high_water = high_water

    def write(self, frame: bytes) -> None:
        """Add a frame to the buffer, or give it to the request it answers."""
        if self._is_taken(frame):
            return
        self.buffer.append(frame)
        self.on_news()
        if not self.is_paused and self.buffer.unsent_bytes > self._high_water:
            self.is_paused = True
            self.on_pause()

    def close(self, code: int, reason: str) -> None:
        """End the link; what is buffered can still be read."""
        if self._note_closed(code, reason):
            self.on_news()

    def drop(self) -> None:
        """End the link, with what is buffered."""
        self.buffer.give_up()
        self.close(CloseCode.TOO_SLOW, "too slow: messages were lost")

    def taken(self) -> None:
        """The downstream has taken events: let the session write on if there is room again."""
        if self.is_paused and self.buffer.unsent_bytes <= self._high_water // 2:
            self.is_paused = False
            self.on_resume()


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
