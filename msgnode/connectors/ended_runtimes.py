"""Ends the registrations of runtimes that have lost their last session.

Rules
- Registrations of a runtime outlive its `close` by the grace period, because stubs of the field
  close and reopen at once. A session that ends otherwise has had its grace period, or was ended by
  somebody: then its registrations end at once.
- Only the registrant keeps an entry alive: an entry of a verified subject needs a session of that
  subject; if sessions of one runtime URL do not share (SHARE_RUNTIME_URL), an entry of a session
  needs that session. Another client's session with the runtime URL keeps nothing alive.
- Sessions may end by the thousand, so an end is only noted here; one job checks them in groups, one
  query per AT_ONCE runtimes, after the ends are committed. It asks the database, not the routing
  table: if sessions of one runtime end at two workers at the same time, the later check finds none.
- A worker that starts notes what was closed recently, so that a restart leaves nothing live. A
  failed group is retried; beyond ROOM those due first are left to their expiry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from heapq import heappop, heappush
from time import monotonic
from typing import Any, NamedTuple

from django.db import close_old_connections
from django.db.models import Q
from django.utils import timezone

from msgnode import models
from msgnode.bus.ports import CLOSED_BY_RUNTIME
from msgnode.core import addresses
from registry.api import session_mark, subject_mark

AT_ONCE = 200
ROOM = 100_000
_GATHERS = 0.05
"""Seconds in which ends become a group."""
_TRIES_AGAIN = 2.0
_AWAY = timedelta(minutes=10)
"""How long ago a runtime may have closed to be processed after a restart."""

log = logging.getLogger(__name__)

End = Callable[[Sequence[str], Mapping[str, frozenset[str]]], Awaitable[None]]
"""Ends all entries of runtimes; and for others (runtime URL -> marks of the present owners) the
entries of absent owners.
"""


class EndedRuntimes:
    """Ends registrations of runtimes that have left.

    `end` ends registrations; `written()` is done when what was submitted to the database before is
    committed; `after` is the grace in seconds.
    """

    def __init__(self, end: End, written: Callable[[], Awaitable[Any]], after: float = 0.0) -> None:
        self._end = end
        self._written = written
        self._after = after
        self._due: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []  # a heap, one entry of each runtime
        self._noted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def note(self, runtime_url: str, after: float | None = None) -> None:
        """A session of this runtime has ended: look after the grace, or after so many seconds.

        Of two times the later one counts.
        """
        due = monotonic() + (self._after if after is None else after)
        known = self._due.get(runtime_url)
        self._due[runtime_url] = due if known is None else max(due, known)
        if known is None:
            heappush(self._queue, (due, runtime_url))
            if len(self._due) > ROOM:
                del self._due[heappop(self._queue)[1]]
        self._noted.set()

    async def run(self) -> None:
        """Check the due runtimes, until cancelled."""
        await self._note_earlier()
        while True:
            while self._queue and self._queue[0][0] <= monotonic():
                await asyncio.sleep(_GATHERS)
                await self._look_up(self._take())
            self._noted.clear()
            wait = self._queue[0][0] - monotonic() if self._queue else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._noted.wait()

    async def _note_earlier(self) -> None:
        try:
            for runtime_url, seconds in await asyncio.to_thread(_closed_lately, self._after):
                self.note(runtime_url, seconds)
        except Exception as error:
            log.warning("What was closed before the start is left to its expiry: %r", error)

    def _take(self) -> list[str]:
        now = monotonic()
        group: list[str] = []
        while self._queue and len(group) < AT_ONCE and self._queue[0][0] <= now:
            _, url = heappop(self._queue)
            if self._due[url] > now:  # noted again meanwhile
                heappush(self._queue, (self._due[url], url))
            else:
                del self._due[url]
                group.append(url)
        return group

    async def _look_up(self, group: list[str]) -> None:
        if not group:
            return
        try:
            await self._written()
            found = await asyncio.to_thread(_looked_up, group, self._after)
            if found.gone or found.present:
                await self._end(found.gone, found.present)
            for url, seconds in found.in_grace.items():
                self.note(url, seconds)
        except Exception as error:
            log.warning("Registrations of ended runtimes wait for another try: %r", error)
            for url in group:
                self.note(url, _TRIES_AGAIN)


class _Found(NamedTuple):
    """Runtimes without a session; marks of those with one or in grace; seconds left of a grace."""

    gone: list[str]
    present: dict[str, frozenset[str]]
    in_grace: dict[str, float]


def _looked_up(runtime_urls: Sequence[str], grace: float) -> _Found:
    """Look the runtimes up in the database, by either spelling of their URLs, at any worker."""
    spellings = {url: (url, addresses.runtime_twin(url)) for url in runtime_urls}
    asked = {each for both in spellings.values() for each in both if each}
    marks: dict[str, set[str]] = {}
    left: dict[str, float] = {}
    now = timezone.now()
    closed = models.Session.State.CLOSED
    lately = Q(close_reason=CLOSED_BY_RUNTIME, closed_at__gt=now - timedelta(seconds=grace))
    close_old_connections()
    try:
        sessions = models.Session.objects.filter(runtime_url__in=asked).order_by()
        rows = sessions.filter(~Q(state=closed) | lately)
        for row in rows.only("runtime_url", "issuer", "subject", "closed_at", "state"):
            known = marks.setdefault(row.runtime_url, set())
            known.add(session_mark(row.id.hex))
            if row.subject:
                known.add(subject_mark(row.issuer, row.subject))
            if row.state == closed:
                seconds = _seconds_left(row.closed_at, now, grace)
                left[row.runtime_url] = max(left.get(row.runtime_url, 0.0), seconds)
    finally:
        close_old_connections()
    found = _Found([], {}, {})
    for url, both in spellings.items():
        present = {mark for each in both for mark in marks.get(each, ())}
        if present:
            found.present[url] = frozenset(present)
        else:
            found.gone.append(url)
        if seconds := max(left.get(each, 0.0) for each in both):
            found.in_grace[url] = seconds
    return found


def _closed_lately(grace: float) -> list[tuple[str, float]]:
    """Runtimes that recently closed a session, each with the seconds until its check."""
    now = timezone.now()
    closed = models.Session.objects.filter(
        state=models.Session.State.CLOSED,
        closed_at__gt=now - timedelta(seconds=grace) - _AWAY,
    )
    close_old_connections()
    try:
        rows = closed.order_by("-closed_at").values_list("runtime_url", "closed_at")[:ROOM]
        return [(url, _seconds_left(at, now, grace)) for url, at in rows if url]
    finally:
        close_old_connections()


def _seconds_left(closed_at: datetime | None, now: datetime, grace: float) -> float:
    return max(0.0, grace - (now - (closed_at or now)).total_seconds())
