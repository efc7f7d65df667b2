"""Connections that a sandbox asks for: dialled by the core, then handed in through a socket.

Rules
- At most MAX_DIALS at a time; DIAL_BURST at once, then one a second: a stub that has no back-off of
  its own is given one.
- What is refused is answered with the words of the refusal, never with silence.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

Dial = Callable[[str, int], Awaitable[socket.socket]]

MAX_DIALS = 4
DIAL_BURST = 10
_KEPT_WORDS = 300  # characters of a refusal


class Dials:
    """The connections of one sandbox.

    Args:
        dial: connects to host and port, or raises OSError.
        spawn: starts a task that ends with the sandbox.
        on_failure: told why the sandbox cannot go on.
    """

    def __init__(
        self,
        dial: Dial,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_failure: Callable[[str], None],
    ) -> None:
        self._dial = dial
        self._spawn = spawn
        self._on_failure = on_failure
        self._control: socket.socket | None = None
        self._under_way = 0
        self._tokens = float(DIAL_BURST)

    def open(self) -> socket.socket:
        """The child's end of the socket that brings the connections in."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._control.setblocking(False)
        return theirs

    def close(self) -> None:
        """Hand nothing in any more."""
        if self._control is not None:
            self._control.close()
            self._control = None

    def ask(self, number: int, host: str, port: int) -> None:
        """The child wants a connection; it is told under this number what became of it."""
        if self._under_way >= MAX_DIALS:
            self._hand_in(number, None, "Too many connections are asked for.")
            return
        self._under_way += 1
        self._spawn(self._dialled(number, host, port))

    async def _dialled(self, number: int, host: str, port: int) -> None:
        self._tokens -= 1
        asyncio.get_running_loop().call_later(DIAL_BURST, self._earn)
        connected, error = None, ""
        try:
            if self._tokens < 0:
                await asyncio.sleep(-self._tokens)
            connected = await self._dial(host, port)
        except (OSError, UnicodeError) as refused:
            error = str(refused)[:_KEPT_WORDS] or "There was no answer in time."
        finally:
            self._under_way -= 1
        self._hand_in(number, connected, error)

    def _earn(self) -> None:
        self._tokens += 1

    def _hand_in(self, number: int, connected: socket.socket | None, error: str) -> None:
        """Give the child the socket; afterwards it is no more ours."""
        fds = [connected.fileno()] if connected is not None else []
        data = json.dumps({"dial": number, "error": error}).encode()
        try:
            if self._control is not None:
                socket.send_fds(self._control, [data], fds)
        except OSError:
            self._on_failure("It does not take the connections it asked for.")
        finally:
            if connected is not None:
                connected.close()
