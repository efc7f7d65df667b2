"""Looks for the nodes of domains, a few at a time, in the background.

A client can name any number of domains: so only a few are looked for at once, few wait, and domains
without a node are cached in bounded memory and not looked for again for a while. Peers with rows
are looked for separately, so that neither kind delays the other.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from msgnode.core.errors import GatewayTimeout, NodeError, NotFound, Unavailable
from msgnode.core.faults import FAULTS

from . import crossing

AT_ONCE = 2
ROWS_AT_ONCE = 8
MAX_WAITING = 100
MAX_REMEMBERED = 10_000
NEGATIVE_SECONDS = 300.0

Key = TypeVar("Key", bound=Hashable)
Look = Callable[[str], Awaitable[NodeError | None]]
"""Looks for the node of a domain; returns the error if there is none."""


class Lookups:
    """One instance per worker. `look` finds a domain's node and stores it."""

    def __init__(self, look: Look, clock: Callable[[], float] = time.monotonic) -> None:
        self.asked = 0
        self._look = look
        self._clock = clock
        self._negative: OrderedDict[str, tuple[float, NodeError]] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    def refusal(self, domain: str) -> NodeError:
        """The refusal of a message to an unknown domain; also looks for the domain."""
        known = self._negative.get(domain)
        if known is not None and self._clock() < known[0]:
            return known[1]
        if fault := crossing.domain_fault(domain):
            return NotFound(f"There is no node of the domain {domain[:253]}: it {fault}.")
        if domain not in self._tasks:
            if len(self._tasks) >= MAX_WAITING:
                return Unavailable("Too many domains are being looked for: try again later.")
            self._tasks[domain] = asyncio.create_task(self._find(domain))
        return Unavailable(f"The node of {domain} is being looked for: try again.")

    def forget(self, domain: str) -> None:
        """Forget the cached result for a domain, because something about it has changed."""
        self._negative.pop(domain, None)

    async def stop(self) -> None:
        """Look for nothing more."""
        await _stopped(self._tasks.values())

    async def _find(self, domain: str) -> None:
        try:
            async with self._places:
                self.asked += 1
                error = await self._look(domain)
        except Exception as fault:
            FAULTS.note("discovery", fault)
            error = GatewayTimeout(f"The node failed when it looked for {domain}.")
        finally:
            self._tasks.pop(domain, None)
        if error is not None:
            self._negative[domain] = (self._clock() + NEGATIVE_SECONDS, error)
            self._negative.move_to_end(domain)
            if len(self._negative) > MAX_REMEMBERED:
                self._negative.popitem(last=False)


class RowLooks(Generic[Key]):
    """Looks for peers with rows. One instance per worker.

    A failure or delay of one does not affect the others.

    Args:
        look: looks for one peer, and stores the result.
    """

    def __init__(self, look: Callable[[Key], Awaitable[None]]) -> None:
        self._look = look
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(ROWS_AT_ONCE)

    def begin(self, row: Key) -> None:
        """Look for a peer, unless that is in progress."""
        if row not in self._tasks:
            self._tasks[row] = asyncio.create_task(self._find(row))

    async def stop(self) -> None:
        """Look for nothing more."""
        await _stopped(self._tasks.values())

    async def _find(self, row: Key) -> None:
        try:
            async with self._places:
                await self._look(row)
        except Exception as fault:
            FAULTS.note("discovery", fault)
        finally:
            self._tasks.pop(row, None)


async def _stopped(tasks: Iterable[asyncio.Task[None]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
