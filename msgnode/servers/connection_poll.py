"""The sockets of connections, watched by an epoll of their own inside the event loop's.

An event loop calls back for each ready socket separately, in the order in which they became ready.
Here all ready sockets are known at once, so thousands of connections lost at the same moment delay
nobody: connections that can be read are read, lost ones are passed on a few hundred per turn, and
until each is removed `gone` says that nothing should be sent to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable
from typing import Protocol

AT_ONCE = 500
"""Connections whose peer has gone that are passed on per turn of the loop."""
_FEW = 256
"""Ready sockets that are asked for first; if there are more, all are asked for."""


class Watched(Protocol):
    """A connection with a socket."""

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        ...


class ConnectionPoll:
    """The watched connections of one event loop.

    Args:
        loop: the event loop.
        read: called with a connection that can be read.
        ended: called with a connection whose peer has gone. The peer may have sent something
            before. Called once, until `again` is called.
    """

    is_possible = hasattr(select, "epoll")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[Watched], None],
        ended: Callable[[Watched], None],
    ) -> None:
        self._loop = loop
        self._read = read
        self._ended = ended
        self._epoll = select.epoll()
        self._is_served = False
        self._by_descriptor: dict[int, Watched] = {}
        self._descriptors: dict[Watched, int] = {}
        self.gone: set[int] = set()
        """Descriptors whose peer has gone, until they are forgotten or watched again."""

    def __contains__(self, connection: object) -> bool:
        return connection in self._descriptors

    @property
    def connections(self) -> list[Watched]:
        """All watched connections."""
        return list(self._descriptors)

    def watch(self, connection: Watched) -> None:
        """Read this connection whenever it is ready. Does nothing if it is watched already.

        Raises:
            OSError: its socket cannot be watched.
        """
        if connection in self._descriptors:
            return
        if not self._is_served:
            self._is_served = True
            self._loop.add_reader(self._epoll.fileno(), self._serve)
        descriptor = connection.fileno()
        self._epoll.register(descriptor, _WATCHED)
        self._by_descriptor[descriptor] = connection
        self._descriptors[connection] = descriptor

    def again(self, connection: Watched) -> None:
        """Go on watching a connection that was passed to `ended`, if it still is watched."""
        descriptor = self._descriptors.get(connection, -1)
        if descriptor in self.gone:
            self.gone.discard(descriptor)
            with contextlib.suppress(FileExistsError):  # not passed on yet
                self._epoll.register(descriptor, _WATCHED)

    def forget(self, connection: Watched) -> None:
        """Stop watching a connection. Does nothing if it is not watched."""
        descriptor = self._descriptors.pop(connection, None)
        if descriptor is None:
            return
        del self._by_descriptor[descriptor]
        self.gone.discard(descriptor)
        with contextlib.suppress(OSError):  # passed on, or closed already
            self._epoll.unregister(descriptor)

    def _serve(self) -> None:
        ready = self._epoll.poll(0, _FEW)
        if len(ready) == _FEW:
            ready = self._epoll.poll(0, len(self._descriptors))
        if gone := [descriptor for descriptor, events in ready if events & _GONE]:
            self._pass_on(gone)
        for descriptor, events in ready:
            if not events & _GONE and (connection := self._by_descriptor.get(descriptor)):
                self._read(connection)

    def _pass_on(self, gone: list[int]) -> None:
        self.gone.update(gone)
        for descriptor in gone[:AT_ONCE]:  # the kernel reports the others again
            connection = self._by_descriptor.get(descriptor)
            if connection is not None:  # not forgotten because of one before it
                self._epoll.unregister(descriptor)
                self._ended(connection)


if ConnectionPoll.is_possible:
    _WATCHED = select.EPOLLIN | select.EPOLLRDHUP
    _GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
