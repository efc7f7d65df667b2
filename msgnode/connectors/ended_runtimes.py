"""Runtimes that have lost a session: if it was the last, the registry ends what they registered.

Sessions end by the thousand, so an end is only noted here; one job looks them up in groups, one
query for AT_ONCE runtimes, after the ends are committed. The database is asked, not the routing
table: of two workers whose sessions of one runtime end in the same moment, the later finds none.
A group that fails is tried again; beyond ROOM the oldest are left to their expiry.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from time import monotonic
from typing import Any

from django.db import close_old_connections

from msgnode import models
from msgnode.core import addresses

AT_ONCE = 200
ROOM = 100_000
_GATHERS = 0.05
"""Seconds in which ends become a group."""
_TRIES_AGAIN = 2.0

log = logging.getLogger(__name__)


class EndedRuntimes:
    """`end(runtime URLs)` ends their registrations; `written()` is done when what was submitted to
    the database before is committed; `after` is how many seconds later a runtime is looked up."""

    def __init__(
        self,
        end: Callable[[Sequence[str]], Awaitable[None]],
        written: Callable[[], Awaitable[Any]],
        after: float = 0.0,
    ) -> None:
        self._end = end
        self._written = written
        self._after = after
        self._due: OrderedDict[str, float] = OrderedDict()  # soonest first
        self._noted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def note(self, runtime_url: str) -> None:
        """A session of this runtime has ended."""
        self._due[runtime_url] = monotonic() + self._after
        self._due.move_to_end(runtime_url)
        if len(self._due) > ROOM:
            self._due.popitem(last=False)
        self._noted.set()

    async def run(self) -> None:
        """Look up what is due, until cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self._due:
                first = next(iter(self._due.values()))
                await asyncio.sleep(max(_GATHERS, first - monotonic()))
                await self._look_up()

    async def _look_up(self) -> None:
        now = monotonic()
        group = [url for url, due in islice(self._due.items(), AT_ONCE) if due <= now]
        noted = {url: self._due.pop(url) for url in group}
        try:
            await self._written()
            gone = await asyncio.to_thread(_without_session, group)
            if gone:
                await self._end(gone)
        except Exception as error:
            log.warning("Registrations of ended runtimes wait for another try: %r", error)
            again = now + _TRIES_AGAIN
            for url in noted:
                self._due.setdefault(url, again)
                self._due.move_to_end(url, last=False)
            await asyncio.sleep(_TRIES_AGAIN)


def _without_session(runtime_urls: Sequence[str]) -> list[str]:
    """Those that have no session, at whichever worker, by either spelling of their URL."""
    spellings = {url: [url, addresses.runtime_twin(url)] for url in runtime_urls}
    asked = {each for both in spellings.values() for each in both if each}
    close_old_connections()
    try:
        sessions = models.Session.objects.filter(runtime_url__in=asked).order_by()
        open_ = sessions.exclude(state=models.Session.State.CLOSED)
        live = set(open_.values_list("runtime_url", flat=True).distinct())
    finally:
        close_old_connections()
    return [url for url, both in spellings.items() if live.isdisjoint(both)]
