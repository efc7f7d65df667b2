"""Twisted's reactor for uvloop, which closes its handle of a socket that its peer has reset.

Where a reset comes right behind data, uvloop reports the data once and closes its handle: Twisted
is never told of the loss, and the next wait for the socket raises RuntimeError in whoever writes to
it. Here that ends the one connection, as a loss does, and `is_reset` finds those nobody writes to.
`install` comes before the first import of Daphne, which keeps the reactor it finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import Any

from twisted.internet import main
from twisted.internet.asyncioreactor import AsyncioSelectorReactor

from msgnode.core.faults import FAULTS, RESET

_TCP_CLOSE = 7  # the kernel's state of a socket that was reset (Linux's tcp_states.h)


class NodeReactor(AsyncioSelectorReactor):
    """A reactor on which one broken socket is one lost connection."""

    def __init__(self, eventloop: asyncio.AbstractEventLoop) -> None:
        self._broken: set[Any] = set()
        super().__init__(eventloop)

    def addReader(self, reader: Any) -> None:  # noqa: N802 (Twisted's name)
        try:
            super().addReader(reader)
        except RuntimeError:
            self._lose(reader)

    def addWriter(self, writer: Any) -> None:  # noqa: N802 (Twisted's name)
        try:
            super().addWriter(writer)
        except RuntimeError:
            self._lose(writer)

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


def is_reset(transport: Any) -> bool:
    """Whether the peer has reset a connection that is still taken for open."""
    raw = getattr(transport, "socket", None)
    if raw is None or not hasattr(socket, "TCP_INFO"):
        return False
    with contextlib.suppress(OSError):
        return bool(raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE)
    return False


def install() -> None:
    """Make this the process's reactor, unless there is one already."""
    if "twisted.internet.reactor" not in sys.modules:
        main.installReactor(NodeReactor(asyncio.new_event_loop()))
