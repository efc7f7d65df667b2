"""A clock that tests turn, and a pause in which everything that was posted arrives."""

from __future__ import annotations

import asyncio

STEP = 0.5  # seconds between which what is due happens


class FakeClock:
    """The time of the running event loop, which goes ahead when a test turns it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time
        self._ahead = 0.0
        loop.time = lambda: now() + self._ahead  # type: ignore[method-assign]

    async def turn(self, seconds: float) -> None:
        """Let time pass; what is due in it happens."""
        await settled()
        while seconds > 0:
            self._ahead += min(STEP, seconds)
            seconds -= STEP
            await settled()


async def settled() -> None:
    """Everything that is queued has happened."""
    for _ in range(30):
        await asyncio.sleep(0)
