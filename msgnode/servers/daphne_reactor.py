"""Twisted's reactor: a broken socket ends only its connection, and connection work is rate-limited.

Daphne keeps the reactor it finds; importing this file installs this one. Besides
daphne_internals.py, only this file uses private names of Twisted.

- If a reset directly follows data, uvloop reports the data once and closes its handle. Twisted is
  never told of the loss, and the next wait for the socket raises RuntimeError in whoever writes to
  it. Here that ends the one connection, as a loss does.
- Twisted accepts all waiting connections, reads all their requests, and removes all lost ones in
  one turn of the loop: a tenth of a second each for 3,000. Here all of that takes TURN seconds per
  turn, and the rest is queued for later turns. Lost connections are removed before new ones are
  read, so a runtime that reconnects finds its old session detached.
- Around each read and write Twisted notes, for its old log, which socket is active: a tenth of the
  cost of a message that is read alone. That is left out.

The sockets of connections are watched by an epoll of their own inside the event loop's. An event
loop calls back for each ready socket separately, in the order in which they became ready. Here all
ready sockets are known at once, so thousands of connections lost at the same moment delay nobody:
connections that can be read are read, lost ones are passed on a few hundred per turn, and until
each is removed its link is told that nothing should be sent to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet import asyncioreactor, main, tcp

from msgnode.core.faults import FAULTS, RESET
from msgnode.sessions.turn_queue import TurnQueue

from .cork import CORK

AT_ONCE = 500
"""Connections whose peer has gone that are passed on per turn of the loop."""
_FEW = 256
"""Ready sockets that are asked for first; if there are more, all are asked for."""


class Watched(Protocol):
    """A connection with a socket; `is_gone` if its peer has gone."""

    is_gone: bool

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        ...

    def set_gone(self, is_gone: bool) -> None:
        """Set `is_gone`."""
        ...


class ConnectionPoll:
    """The watched connections of one event loop.

    Args:
        loop: the event loop.
        read: called with a connection that can be read.
        on_gone: called with a connection whose peer has gone. The peer may have sent something
            before. Called once, until `again` is called.
    """

    is_possible = hasattr(select, "epoll")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[Watched], None],
        on_gone: Callable[[Watched], None],
    ) -> None:
        self._loop = loop
        self._read = read
        self._on_gone = on_gone
        self._epoll = select.epoll()
        self._is_served = False
        self._by_descriptor: dict[int, Watched] = {}
        self._descriptors: dict[Watched, int] = {}

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
        """Go on watching a connection that was passed to `on_gone`, if it still is watched."""
        descriptor = self._descriptors.get(connection)
        if descriptor is not None and connection.is_gone:
            connection.set_gone(False)
            with contextlib.suppress(FileExistsError):  # not passed on yet
                self._epoll.register(descriptor, _WATCHED)

    def forget(self, connection: Watched) -> None:
        """Stop watching a connection. Does nothing if it is not watched."""
        descriptor = self._descriptors.pop(connection, None)
        if descriptor is None:
            return
        del self._by_descriptor[descriptor]
        if connection.is_gone:
            connection.set_gone(False)
        with contextlib.suppress(OSError):  # passed on, or closed already
            self._epoll.unregister(descriptor)

    def _serve(self) -> None:
        ready = self._epoll.poll(0, _FEW)
        if len(ready) == _FEW:
            ready = self._epoll.poll(0, len(self._descriptors))
        CORK.reading()
        try:
            if gone := [descriptor for descriptor, events in ready if events & _GONE]:
                self._pass_on(gone)
            for descriptor, events in ready:
                if not events & _GONE and (connection := self._by_descriptor.get(descriptor)):
                    self._read(connection)
        finally:
            CORK.read()

    def _pass_on(self, gone: list[int]) -> None:
        for descriptor in gone:
            connection = self._by_descriptor.get(descriptor)
            if connection is not None and not connection.is_gone:
                connection.set_gone(True)
        for descriptor in gone[:AT_ONCE]:  # the kernel reports the others again
            connection = self._by_descriptor.get(descriptor)
            if connection is not None:  # not forgotten because of one before it
                self._epoll.unregister(descriptor)
                self._on_gone(connection)


if ConnectionPoll.is_possible:
    _WATCHED = select.EPOLLIN | select.EPOLLRDHUP
    _GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


TURN = 0.001
"""Seconds per turn for connections that come and go; other messages wait for so long."""

TURN_QUEUE = TurnQueue(seconds=TURN)


class NodeTransport(tcp.Server):
    """A connection that is read in turns until it is a WebSocket."""

    reactor: Any  # the NodeReactor
    protocol: Any
    _shouldShutdown = False  # not before it is closed, because other processes share the socket
    is_new = True
    is_gone = False
    is_waiting = False
    """Whether it is queued to be read in a later turn."""
    lost_reason: Any = None
    """The reason of its loss, while it is queued to be removed."""

    @property
    def is_watched(self) -> bool:
        """Whether its loss is noticed at once; it is not while reading it is paused."""
        return self.reactor.is_watched(self)

    def doRead(self) -> Any:  # noqa: N802 (Twisted's name)
        """Read the connection; a new one waits for its turn.

        The rest is what Twisted does in three calls, for each message that is read alone.
        """
        if self.is_new and (self.is_waiting or not _is_its_turn()):
            self.read_later()
            return None
        try:
            data = self.socket.recv(self.bufferSize)
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        if not data:
            return main.CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

    def read_later(self) -> None:
        """Have it read in a later turn."""
        if not self.is_waiting:
            self.is_waiting = True
            self.reactor.read_later(self)

    def set_gone(self, is_gone: bool) -> None:
        """Note, and tell the link, whether the peer has gone."""
        self.is_gone = is_gone
        if self._link is not None:
            self._link.set_gone(is_gone)

    def mark_lost(self, why: Any) -> None:
        """Note that the connection is lost and will be removed: nothing more is written to it."""
        self.lost_reason = why
        if self._link is not None:
            self._link.mark_lost()

    def connectionLost(self, reason: Any) -> None:  # noqa: N802 (Twisted's name)
        """Close the socket, whose link keeps what the kernel knows of it."""
        if self._link is not None:
            self._link.mark_ended()
        super().connectionLost(reason)

    @property
    def _link(self) -> Any:
        return getattr(getattr(self, "protocol", None), "link", None)


class NodeReactor(asyncioreactor.AsyncioSelectorReactor):
    """A reactor on which a broken socket is only a lost connection."""

    def __init__(self, eventloop: asyncio.AbstractEventLoop) -> None:
        self._broken: set[Any] = set()
        self._lost_ones: deque[tuple[NodeTransport, bool]] = deque()
        self._new_ones: deque[NodeTransport] = deque()
        self._next = self._serve_next  # bound once, because thousands may be queued
        self._gone_ones: deque[NodeTransport] = deque()
        self._poll: ConnectionPoll | None = None
        if ConnectionPoll.is_possible:
            self._poll = ConnectionPoll(eventloop, self._read, self._take_gone)
        super().__init__(eventloop)

    def addReader(self, reader: Any) -> None:  # noqa: N802 (Twisted's name)
        """Watch a descriptor; one that cannot be watched loses its connection, not the worker."""
        try:
            if self._poll is not None and isinstance(reader, NodeTransport):
                self._poll.watch(reader)
            else:
                super().addReader(reader)
        except (RuntimeError, OSError):
            self._lose(reader)

    def removeReader(self, reader: Any) -> None:  # noqa: N802 (Twisted's name)
        """Stop watching a descriptor."""
        if self._poll is not None and isinstance(reader, NodeTransport):
            self._poll.forget(reader)
        else:
            super().removeReader(reader)

    def is_watched(self, connection: NodeTransport) -> bool:
        """Whether a connection is watched by the reactor's own epoll."""
        return self._poll is not None and connection in self._poll

    def getReaders(self) -> list[Any]:  # noqa: N802 (Twisted's name)
        """Return everything that is watched for reading."""
        return [*super().getReaders(), *self._polled()]

    def removeAll(self) -> list[Any]:  # noqa: N802 (Twisted's name)
        """Stop watching everything, and return what was watched."""
        polled = self._polled()
        for connection in polled:
            self.removeReader(connection)
        return list({*super().removeAll(), *polled})

    def _polled(self) -> list[Any]:
        return [] if self._poll is None else self._poll.connections

    def addWriter(self, writer: Any) -> None:  # noqa: N802 (Twisted's name)
        """Watch a descriptor; one that the loop refuses loses its connection, not the worker."""
        try:
            super().addWriter(writer)
        except RuntimeError:
            self._lose(writer)

    def _disconnectSelectable(  # noqa: N802 (Twisted's name)
        self,
        selectable: Any,
        why: Any,
        isRead: bool,  # noqa: N803
        *rest: Any,
    ) -> None:
        """Remove a lost connection, or queue that for a later turn."""
        if not isinstance(selectable, NodeTransport) or (
            selectable.lost_reason is None and _is_its_turn()
        ):
            super()._disconnectSelectable(selectable, why, isRead, *rest)
            return
        self.removeReader(selectable)
        self.removeWriter(selectable)
        if selectable.lost_reason is None:
            selectable.mark_lost(why)
            self._lost_ones.append((selectable, isRead))
            TURN_QUEUE.wait(self._next)

    def read_later(self, transport: NodeTransport) -> None:
        """Queue a connection to be read in a later turn."""
        self._new_ones.append(transport)
        TURN_QUEUE.wait(self._next)

    def _read(self, connection: Any) -> None:
        self._readOrWrite(connection, True)

    def _take_gone(self, connection: Any) -> None:
        """Read what a peer that has gone had sent, in this turn or in a later one."""
        is_its_turn = _is_its_turn()
        if connection.is_new:
            connection.read_later()
        elif is_its_turn:
            self._read_to_end(connection)
        else:
            self._gone_ones.append(connection)
            TURN_QUEUE.wait(self._next)

    def _read_to_end(self, connection: Any) -> None:
        if self._poll is not None and connection in self._poll:
            self._readOrWrite(connection, True)
            self._poll.again(connection)

    def _serve_next(self) -> None:
        """Serve the next queued connection: lost ones are removed before new ones are read."""
        with FAULTS.kept_to("connection"):
            if self._lost_ones:
                lost, is_read = self._lost_ones.popleft()
                super()._disconnectSelectable(lost, lost.lost_reason, is_read)
            elif self._gone_ones:
                self._read_to_end(self._gone_ones.popleft())
            else:
                new = self._new_ones.popleft()
                new.is_waiting = False
                if new.connected and not new.disconnecting:
                    self._readOrWrite(new, True)
                if self._poll is not None and not new.is_waiting:
                    self._poll.again(new)

    def _lose(self, selectable: Any) -> None:
        """Lose a connection in the next turn, because its writer may still be using it."""
        if selectable not in self._broken:
            self._broken.add(selectable)
            FAULTS.note(RESET)
            self.callLater(0, self._lost, selectable)

    def _lost(self, selectable: Any) -> None:
        self._broken.discard(selectable)
        with FAULTS.kept_to("connection"):
            self._disconnectSelectable(selectable, main.CONNECTION_LOST, False)


def _is_its_turn() -> bool:
    """Whether a connection may be read or removed now."""
    TURN_QUEUE.enter()
    return not TURN_QUEUE.must_wait


def accept_a_few(port: Any, most: int) -> None:
    """Have a listening port accept at most so many connections per turn of the loop.

    It accepts none while others are queued.
    """
    accept = port.doRead
    port.transport = NodeTransport

    def do_read() -> None:
        if _is_its_turn():
            port.numberAccepts = most
            accept()

    port.doRead = do_read


def _call(_: Any, call: Callable[..., None], *args: Any) -> None:
    """Call the handler of a socket that is ready."""
    call(*args)


vars(asyncioreactor).update(callWithLogger=_call)

if "twisted.internet.reactor" not in sys.modules:
    main.installReactor(NodeReactor(asyncio.new_event_loop()))

from twisted.internet import reactor  # noqa: E402

_installed: Any = reactor  # the installed one, whose class Twisted's annotations do not have


def event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the installed reactor."""
    loop: asyncio.AbstractEventLoop = _installed._asyncioEventloop
    return loop
