"""Steady traffic: so many messages a second, whatever the server makes of them."""

from __future__ import annotations

import asyncio
from itertools import cycle
from time import perf_counter
from typing import Any

from .clock import measure, percentile, until
from .relay import RelayLoad

_PAIRS = 20
_EVERY = 0.01  # seconds between two bursts


class SteadyLoad(RelayLoad):
    async def run(self, rate: float, size: int, seconds: float) -> dict[str, Any]:  # type: ignore[override]
        """One sample: the processor time a server takes at this rate, and how long messages are
        under way."""
        await self._open(_PAIRS, None)
        pairs = self._pairs[:_PAIRS]
        for number, pair in enumerate(pairs):
            pair.start(self._frames(number, size, None, 1), 0)
            pair.is_running = False
            pair.times.clear()
        sending = asyncio.create_task(_send(pairs, rate))
        try:
            sample = await measure(
                lambda: sum(pair.count for pair in pairs), seconds, self._server_pid, 1.0
            )
        finally:
            sending.cancel()
        await until(lambda: not any(pair.under_way for pair in pairs), 3.0)
        times = sorted(time for pair in pairs for time in pair.times)
        lost = sum(len(pair.under_way) for pair in pairs)
        return {
            **sample,
            "p50_us": percentile(times, 0.5) * 1e6,
            "p99_us": percentile(times, 0.99) * 1e6,
            "lost": lost,
        }


async def _send(pairs: list[Any], rate: float) -> None:
    began, sent, turn = perf_counter(), 0, cycle(pairs)
    while True:
        await asyncio.sleep(_EVERY)
        due = int((perf_counter() - began) * rate)
        for _ in range(due - sent):
            next(turn)._send()
        sent = due
