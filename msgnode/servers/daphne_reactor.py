"""Twisted's reactor and its connections: one broken is one lost, and many come and go in turns.

Daphne keeps the reactor it finds; importing this file installs this one. With daphne_internals.py,
and nowhere else, it uses names that are Twisted's alone.

- Where a reset comes right behind data, uvloop reports the data once and closes its handle. Twisted
  is never told of the loss, and the next wait for the socket raises RuntimeError in whoever writes
  to it. Here that ends the one connection, as a loss does.
- Twisted takes all connections that wait, reads all that they ask, and takes down all that are
  lost in one turn of the loop: of 3,000 that is a tenth of a second each. Here all of that takes
  TURN seconds of a turn, and the rest waits for the next ones, what is lost before what is new.
  So a runtime that has lost its connection is found detached by the one it comes back with.
- It says around each read and write which socket is at work, for lines of its old log: a tenth of
  what a message costs that is read alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet import asyncioreactor, main, tcp

from msgnode.core.faults import FAULTS, RESET
from msgnode.sessions.turn_line import TurnLine

TURN = 0.001
"""Seconds of a turn for connections that come and go: what others say waits for them."""

LINE = TurnLine(seconds=TURN)


class NodeTransport(tcp.Server):
    """A connection that is read only in its turn until it is a WebSocket."""

    reactor: Any  # the NodeReactor
    protocol: Any
    _shouldShutdown = False  # before it is closed: for sockets that other processes have as well
    is_new = True
    is_waiting = False
    """Whether it is to be read in a turn to come."""
    lost_by: Any = None
    """What it was lost by, while it waits to be taken down."""

    def doRead(self) -> Any:  # noqa: N802 (Twisted's name)
        """Read; one that is new waits for its turn.

        The rest is what Twisted does in three calls, for each message that is read alone.
        """
        if self.is_new and (self.is_waiting or not _is_its_turn()):
            if not self.is_waiting:
                self.is_waiting = True
                self.reactor.read_later(self)
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

    def losing(self, why: Any) -> None:
        """It is lost and waits to be taken down: nothing more is written to it."""
        self.lost_by = why
        link = getattr(getattr(self, "protocol", None), "link", None)
        if link is not None:
            link.losing()


class NodeReactor(asyncioreactor.AsyncioSelectorReactor):
    """A reactor on which one broken socket is one lost connection."""

    def __init__(self, eventloop: asyncio.AbstractEventLoop) -> None:
        self._broken: set[Any] = set()
        self._lost_ones: deque[tuple[NodeTransport, bool]] = deque()
        self._new_ones: deque[NodeTransport] = deque()
        self._next = self._serve_next  # one for all: thousands may wait
        super().__init__(eventloop)

    def addReader(self, reader: Any) -> None:  # noqa: N802 (Twisted's name)
        """Watch a descriptor; one that the loop refuses loses its connection, not the worker."""
        try:
            super().addReader(reader)
        except RuntimeError:
            self._lose(reader)

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
        """Take a lost connection down, or have it wait for its turn."""
        if not isinstance(selectable, NodeTransport) or (
            selectable.lost_by is None and _is_its_turn()
        ):
            super()._disconnectSelectable(selectable, why, isRead, *rest)
            return
        self.removeReader(selectable)
        self.removeWriter(selectable)
        if selectable.lost_by is None:
            selectable.losing(why)
            self._lost_ones.append((selectable, isRead))
            LINE.wait(self._next)

    def read_later(self, transport: NodeTransport) -> None:
        """Read a connection in a turn to come."""
        self._new_ones.append(transport)
        LINE.wait(self._next)

    def _serve_next(self) -> None:
        """The next one that waits: what is lost goes before what is new."""
        with FAULTS.kept_to("connection"):
            if self._lost_ones:
                lost, is_read = self._lost_ones.popleft()
                super()._disconnectSelectable(lost, lost.lost_by, is_read)
                return
            new = self._new_ones.popleft()
            new.is_waiting = False
            if new.connected and not new.disconnecting:
                self._readOrWrite(new, True)

    def _lose(self, selectable: Any) -> None:
        """Not at once: whoever writes is in the middle of something."""
        if selectable not in self._broken:
            self._broken.add(selectable)
            FAULTS.note(RESET)
            self.callLater(0, self._lost, selectable)

    def _lost(self, selectable: Any) -> None:
        self._broken.discard(selectable)
        with FAULTS.kept_to("connection"):
            self._disconnectSelectable(selectable, main.CONNECTION_LOST, False)


def _is_its_turn() -> bool:
    """Whether a connection may come or go now."""
    LINE.enter()
    return not LINE.must_wait


def accept_a_few(port: Any, most: int) -> None:
    """Have a listening port take at most so many connections in a turn of the loop.

    It takes none while others wait for their turn.
    """
    accept = port.doRead
    port.transport = NodeTransport

    def do_read() -> None:
        if _is_its_turn():
            port.numberAccepts = most
            accept()

    port.doRead = do_read


def _call(_: Any, call: Callable[..., None], *args: Any) -> None:
    """What the reactor calls for a socket that is ready."""
    call(*args)


vars(asyncioreactor).update(callWithLogger=_call)

if "twisted.internet.reactor" not in sys.modules:
    main.installReactor(NodeReactor(asyncio.new_event_loop()))

from twisted.internet import reactor  # noqa: E402

_installed: Any = reactor  # the installed one, whose class Twisted's annotations do not know


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of the installed reactor."""
    loop: asyncio.AbstractEventLoop = _installed._asyncioEventloop
    return loop
