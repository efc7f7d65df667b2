"""A clock that tests turn, and a pause in which everything that was posted arrives."""

from __future__ import annotations

import asyncio
import math

STEP = 0.5  # seconds between which what is due happens


class FakeClock:
    """The time of the running event loop: it stands still until a test turns it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = float(math.ceil(self._loop.time()))  # halves of a second are exact
        self._loop.time = lambda: self._now  # type: ignore[method-assign]

    async def turn(self, seconds: float) -> None:
        """Let time pass; what is due in it happens."""
        end = self._now + seconds
        await settled()
        while self._now < end:
            self._now = min(end, self._now + STEP)
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
