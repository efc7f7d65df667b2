"""A clock that tests turn, and a pause in which everything that was posted arrives."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

STEP = 0.5  # seconds between which what is due happens


class FakeClock:
    """The time of the running event loop: it stands still until a test turns it, and while
    something is under way that takes real time, such as an answer of a server."""

    def __init__(self, is_under_way: Callable[[], bool] = bool) -> None:
        self._is_under_way = is_under_way
        self._loop = asyncio.get_running_loop()
        self._now = float(math.ceil(self._loop.time()))  # halves of a second are exact
        self._loop.time = lambda: self._now  # type: ignore[method-assign]

    async def turn(self, seconds: float) -> None:
        """Let time pass; what is due in it happens."""
        end = self._now + seconds
        await self._arrived()
        while self._now < end:
            self._now = min(end, self._now + STEP)
            await self._arrived()

    async def _arrived(self) -> None:
        await settled()
        while self._is_under_way():
            await asyncio.to_thread(time.sleep, 0.002)
            await settled()

    @property
    def timers(self) -> int:
        """How many run."""
        scheduled = self._loop._scheduled  # type: ignore[attr-defined]
        return sum(not each.cancelled() for each in scheduled)


async def settled() -> None:
    """Everything that is queued has happened."""
    for _ in range(30):
        await asyncio.sleep(0)
