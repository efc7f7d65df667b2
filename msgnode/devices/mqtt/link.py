"""The Link of a session behind a broker: frames wait to be published.

A frame counts as unsent until the broker has acknowledged it. If the connection to the broker is
lost before, the frame returns to the session, so a device may get a frame twice but loses none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgnode.sessions.frame_connection import AnsweringLink, nothing
from msgnode.sessions.rules import CloseCode

HIGH_WATER = 64 * 1024
"""Unsent bytes above which the session queues frames in its own outbox."""


class BrokerLink(AnsweringLink):
    """`on_frames` is called when there is something to publish."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent_bytes = 0
        self.on_frames: Callable[[], None] = nothing
        self._unsent: deque[bytes] = deque()
        self._unacknowledged: deque[bytes] = deque()

    @property
    def has_frames(self) -> bool:
        """Whether a frame waits to be published."""
        return bool(self._unsent)

    def write(self, frame: bytes) -> None:
        """Add a frame, or give it to the request it answers."""
        if self._is_taken(frame):
            return
        self._unsent.append(frame)
        self.unsent_bytes += len(frame)
        if not self.is_paused and self.unsent_bytes > HIGH_WATER:
            self.is_paused = True
            self.on_pause()
        self.on_frames()

    def close(self, code: int, reason: str) -> None:
        """End the link."""
        self._note_closed(code, reason)

    def drop(self) -> None:
        """End the link, with what was not published."""
        self._unsent.clear()
        self.close(CloseCode.TOO_SLOW, "too slow: messages were lost")

    def take(self) -> bytes:
        """The next frame to publish."""
        frame = self._unsent.popleft()
        self._unacknowledged.append(frame)
        return frame

    def acknowledged(self) -> None:
        """The oldest frame that was taken has arrived."""
        if self._unacknowledged:  # or it was given back meanwhile
            self._forget(self._unacknowledged.popleft())

    def not_taken(self) -> None:
        """The frame that was taken last will not arrive."""
        if self._unacknowledged:
            self._forget(self._unacknowledged.pop())

    def give_back(self) -> list[bytes]:
        """Remove and return frames that may not have arrived, in order."""
        frames = [*self._unacknowledged, *self._unsent]
        self._unacknowledged.clear()
        self._unsent.clear()
        self.unsent_bytes = 0
        return frames

    def _forget(self, frame: bytes) -> None:
        self.unsent_bytes -= len(frame)
        if self.is_paused and self.unsent_bytes <= HIGH_WATER // 2:
            self.is_paused = False
            self.on_resume()
