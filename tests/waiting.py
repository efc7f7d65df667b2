"""Waiting, with a limit, for what another process does and no event announces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


def until(
    look: Callable[[], T], seconds: float, said: Callable[[], str] = str, *, every: float = 0.2
) -> T:
    """Look again and again until it is true; what it was. After `seconds` the test fails with what
    `said` tells. The looks are close at first and come each `every` seconds at last, since
    they take the time of who is looked at."""
    limit = time.monotonic() + seconds
    pause = min(0.01, every)
    while not (seen := look()):
        assert time.monotonic() < limit, said() or f"not so within {seconds:g} s"
        time.sleep(pause)
        pause = min(pause * 1.2, every)
    return seen


async def so(is_so: Callable[[], object], seconds: float = 30.0) -> None:
    """Let the loop turn until something is so; what it looks at is in this process."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110  (no event announces it)
            await asyncio.sleep(0.01)


async def seen(
    ask: Callable[[], Awaitable[T]], fits: Callable[[T], object] = bool, seconds: float = 30.0
) -> T:
    """Ask again and again until the answer fits; the answer."""
    limit = time.monotonic() + seconds
    while not fits(told := await ask()):
        assert time.monotonic() < limit, f"not so within {seconds:g} s: {told}"
        await asyncio.sleep(0.05)
    return told


def in_page(page: Any, expression: str, seconds: float = 30.0) -> Any:
    """Ask a page of a browser again and again until an expression of JavaScript is true there.

    Instead of `wait_for_function`, which evaluates its text inside the page at each later look, and
    is stopped there by a policy that forbids it.
    """
    return until(
        lambda: page.evaluate(expression), seconds, lambda: f"{page.url}: never {expression}"
    )
