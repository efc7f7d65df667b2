"""Runs several Spark jobs at once.

Planning a small one takes about as long as running it, so one is planned while others run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 3


def run_parallel(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """What the jobs give, in their order. Raises what the first to fail raised."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda job: job(), jobs))
