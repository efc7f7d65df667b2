"""When what was written to links is sent: the frames of one turn of the loop, or of several.

Most frames leave as soon as all sockets that were ready have been read, others at the end of the
turn. Those of work that takes several turns, such as fan-outs (sessions/turn_queue.py), wait until
that is done, at most HOLD seconds: a socket that observes costs as much for ten frames as for one.
Then AT_ONCE sockets are written to each turn. Meanwhile such work waits, again at most HOLD
seconds: else two halves of what a sender has under way would follow each other for ever, each with
half of the frames.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import thread_time
from typing import Protocol

from msgnode.sessions.turn_queue import TURN_QUEUE

HOLD = 0.05
"""Seconds of processor time that frames of a fan-out may wait for those of the next one."""
AT_ONCE = 250
"""Sockets with such frames that are written to in one turn of the loop, some 2 ms."""
QUIET_TURNS = 3
"""Turns of the loop until work that took several is over: a sender that was held back is read again
in the second, and what it has sent meanwhile belongs to it.
"""


class Corked(Protocol):
    """A link with frames that wait."""

    def uncork(self) -> None:
        """Send them. A link that fails ends by itself; this raises nothing."""
        ...


class Cork:
    """One per process, whose links share one event loop."""

    def __init__(self) -> None:
        self._corked: list[Corked] = []
        self._held: list[Corked] = []
        self._held_since = 0.0
        self._quiet_turns = 0
        self._released: deque[Corked] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_reading = False

    def reading(self) -> None:
        """Note that sockets are being read; `read` follows."""
        self._is_reading = True

    def read(self) -> None:
        """Send what was written meanwhile: another turn of the loop would only cost time."""
        self._is_reading = False
        if self._corked:
            self._uncork()

    def add(self, link: Corked) -> None:
        """Have the frames of a link sent; it has none that wait already."""
        if not TURN_QUEUE.is_working:
            self._corked.append(link)
            if self._is_reading:
                return
        else:
            if not self._held:
                self._held_since = thread_time()
                self._quiet_turns = QUIET_TURNS
            self._held.append(link)
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the first one, or the loop is a new one
            self._loop = loop
            loop.call_soon(self._send)

    def _send(self) -> None:
        self._loop = None
        self._quiet_turns = 0 if TURN_QUEUE.is_waited_for else self._quiet_turns + 1
        is_over = self._quiet_turns >= QUIET_TURNS or thread_time() - self._held_since > HOLD
        if is_over and self._held and not self._released:
            self._released.extend(self._held)
            self._held.clear()
            TURN_QUEUE.block(HOLD)
        if self._released:
            few = min(AT_ONCE, len(self._released))
            self._corked += (self._released.popleft() for _ in range(few))
            if not self._released:
                TURN_QUEUE.unblock()
        self._uncork()
        if self._held or self._released:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._send)

    def _uncork(self) -> None:
        links, self._corked = self._corked, []
        for link in links:
            link.uncork()


CORK = Cork()
"""That of this process."""
