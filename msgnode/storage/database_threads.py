"""Calls that use the database, off the event loop: in a few threads; so many may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import close_old_connections

from msgnode.core.errors import TooMany

Result = TypeVar("Result")


class DatabaseThreads:
    """The threads of one use, each with a database connection of its own.

    Args:
        name: of the threads.
        threads: how many calls run at a time; of one thread, in the order in which they came.
        room: how many may run and wait.
        refusal: what is said of one that finds no room.
    """

    def __init__(self, name: str, threads: int, room: int, refusal: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._room = room
        self._refusal = refusal
        self._waiting = 0

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a call in one of the threads.

        Returns:
            what it returns.

        Raises:
            TooMany: there is no room.
        """
        if self._waiting >= self._room:
            raise TooMany(self._refusal)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, with_database, call)
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        """End the threads; calls that have not begun are dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def with_database(call: Callable[[], Result]) -> Result:
    """Run a call between two looks at the connection: one that is old or broken is given back."""
    close_old_connections()
    try:
        return call()
    finally:
        close_old_connections()
