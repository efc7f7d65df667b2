"""What is not done within one turn of the event loop stands in line, all connections in one.

Messages to many, and frames that open or close a session, take at most TURN seconds of each turn of
the loop together, however many send them at once; the messages of everybody else go between. Who
has to wait is called in the order of coming, and goes to the end of the line if that is too short.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from msgnode.core.faults import FAULTS

TURN = 0.002


class TurnLine:
    """One a worker.

    Args:
        clock: seconds, of any beginning.
        seconds: of a turn, for all that stand in this line together.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter, seconds: float = TURN) -> None:
        self._clock = clock
        self._seconds = seconds
        self._waiting: deque[Callable[[], None]] = deque()
        self._over_at = 0.0
        self._turns_for: asyncio.AbstractEventLoop | None = None
        self._is_calling = False

    def enter(self) -> None:
        """Somebody begins to work: the first one of a turn starts its time."""
        loop = asyncio.get_running_loop()
        if self._turns_for is not loop:  # nobody has begun yet, or on a loop that has ended
            self._begin(loop)

    @property
    def must_wait(self) -> bool:
        """Whether the turn's time is used up, or others have waited longer."""
        return (bool(self._waiting) and not self._is_calling) or self._clock() > self._over_at

    def wait(self, callback: Callable[[], None]) -> None:
        """Be called, once, in a turn to come."""
        self._waiting.append(callback)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns_for = loop
        self._over_at = self._clock() + self._seconds
        loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turns_for = None
        if not self._waiting:
            return
        self._begin(asyncio.get_running_loop())
        self._is_calling = True
        try:
            for _ in range(len(self._waiting)):
                with FAULTS.kept_to("message"):
                    self._waiting.popleft()()
                if self._clock() > self._over_at:
                    return
        finally:
            self._is_calling = False


LINE = TurnLine()
"""The line of this process's messages, whose event loop all of its connections share."""
