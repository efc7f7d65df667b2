"""Runs reservations off the event loop: commands in groups, look-ups in two threads. Bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgnode.storage.database_threads import DatabaseThreads
from msgnode.storage.fence import Check, unfenced
from msgnode.storage.group_commit import GroupCommit

from . import bookings
from .bookings import Command, Limits

THREADS = 2
MAX_LOOKUPS = 1_000
MAX_COMMANDS = 5_000

Result = TypeVar("Result")


class ReservationStore:
    """One for the process.

    Args:
        limits: of reservations.
        check: raises inside a transaction if this worker may not write any more.
        fenced: called, in the thread that commits, when it did.
    """

    def __init__(
        self, limits: Limits, check: Check = unfenced, fenced: Callable[[], None] | None = None
    ) -> None:
        self.limits = limits
        self.check = check
        self._commits: GroupCommit[Command] = GroupCommit(
            "qos-writer", self._apply, bookings.MAX_GROUP, capacity=MAX_COMMANDS, fenced=fenced
        )
        self._threads = DatabaseThreads(
            "qos-lookup",
            THREADS,
            MAX_LOOKUPS,
            "The QoS broker has too many requests waiting; try again later.",
        )

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Carry out a command; its row after the commit. Raises NodeError by the future."""
        return self._commits.submit(command)

    async def in_thread(self, call: Callable[[], Result]) -> Result:
        """Run a call that uses the database. Raises TooMany."""
        return await self._threads.run(call)

    async def stop(self) -> None:
        """Commit what was submitted; look-ups that have not begun are dropped."""
        self._threads.stop()
        await self._commits.stop()

    def _apply(self, commands: list[Command]) -> Sequence[Any]:
        return bookings.apply(commands, self.limits, self.check)
