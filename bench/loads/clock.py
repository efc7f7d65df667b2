"""Measures a stretch of time: how many, how fast, at what cost to server and generator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from bench.processes import cpu_seconds


async def measure(
    count: Callable[[], int], seconds: float, server_pid: int, warm_up: float = 0.2
) -> dict[str, float]:
    """Let the load run for a while and give its rate; `count` is what has been done so far."""
    await asyncio.sleep(warm_up)
    began, done = time.perf_counter(), count()
    own, theirs = time.process_time(), cpu_seconds(server_pid)
    await asyncio.sleep(seconds)
    passed, number = time.perf_counter() - began, count() - done
    own, theirs = time.process_time() - own, cpu_seconds(server_pid) - theirs
    return {
        "rate": number / passed,
        "server_cpu": theirs / passed,
        "generator_cpu": own / passed,
        "per_cpu_second": number / theirs if theirs else 0.0,
    }


def percentile(ordered: list[float], share: float) -> float:
    """A value of a sorted list, 0.0 if it is empty."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


async def until(is_done: Callable[[], bool], patience: float) -> bool:
    """Wait for something; whether it came."""
    deadline = time.perf_counter() + patience
    while not is_done():
        if time.perf_counter() > deadline:
            return False
        await asyncio.sleep(0.005)
    return True
