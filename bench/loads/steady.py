"""Steady traffic: so many messages a second, whatever the server makes of them."""

from __future__ import annotations

import asyncio
from itertools import cycle
from time import perf_counter
from typing import Any

from .clock import measure
from .relay import RelayLoad

_PAIRS = 20
_EVERY = 0.01  # seconds between two bursts


class SteadyLoad(RelayLoad):
    async def run(self, rate: float, size: int, seconds: float) -> dict[str, Any]:  # type: ignore[override]
        """One sample of the processor time that a server takes at this rate."""
        await self._open(_PAIRS, None)
        pairs = self._pairs[:_PAIRS]
        for number, pair in enumerate(pairs):
            pair.start(self._frames(number, size, None, 1), 0)
            pair.is_running = False
        sending = asyncio.create_task(_send(pairs, rate))
        try:
            sample = await measure(
                lambda: sum(pair.count for pair in pairs), seconds, self._server_pid, 1.0
            )
        finally:
            sending.cancel()
        return {**sample, "lost": 0}


async def _send(pairs: list[Any], rate: float) -> None:
    began, sent, turn = perf_counter(), 0, cycle(pairs)
    while True:
        await asyncio.sleep(_EVERY)
        due = int((perf_counter() - began) * rate)
        for _ in range(due - sent):
            next(turn)._send()
        sent = due
