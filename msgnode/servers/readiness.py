"""Which connections are ready to be read and written, and which of them their peers have ended.

An event loop calls back for each one that is ready, one after another, and only then says what for.
Here all are asked at once, so that those that ended can be told from those that speak.
"""

from __future__ import annotations

import select
from contextlib import suppress
from typing import Any

HAS_EPOLL = hasattr(select, "epoll")
"""Linux alone has it."""
if HAS_EPOLL:
    ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
    READABLE = select.EPOLLIN | ENDED
    WRITABLE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
else:
    ENDED = READABLE = WRITABLE = 0


class Readiness:
    """A set of connections. One stays ready until it is served, so it may be left for later."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self.transports: dict[int, Any] = {}

    def fileno(self) -> int:
        """What is readable while any of them is ready."""
        return self._epoll.fileno()

    def watch(self, fd: int, transport: Any, events: int) -> None:
        """Tell these events of a connection as well."""
        if self.transports.get(fd) is transport:
            self._masks[fd] |= events
            self._epoll.modify(fd, self._masks[fd])
            return
        if fd in self.transports:  # of one that was closed without a word
            with suppress(OSError):
                self._epoll.unregister(fd)
        self._epoll.register(fd, events)
        self._masks[fd], self.transports[fd] = events, transport

    def ignore(self, fd: int, transport: Any, events: int) -> None:
        """Tell these events no longer."""
        if self.transports.get(fd) is not transport:
            return
        left = self._masks[fd] & ~events
        with suppress(OSError):  # it is closed already
            if left:
                self._epoll.modify(fd, left)
            else:
                self._epoll.unregister(fd)
        if left:
            self._masks[fd] = left
        else:
            del self._masks[fd], self.transports[fd]

    def now(self) -> list[tuple[int, int]]:
        """The descriptors that are ready, and the events of each."""
        return self._epoll.poll(0, len(self._masks) or 1)
