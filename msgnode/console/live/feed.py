"""One feed a worker: gathers figures once a second and hands them to all who watch.

What a page shows is its topic: OVERVIEW, or the id of a session. All pages of a topic are handed
the same text.

Rules
- Nothing is gathered while nobody watches.
- Another worker that does not answer in time is shown as not heard of; the others are shown.
- A database that is away takes away what it knows (alarms, lights) and says so; the figures, which
  are in memory, go on. Who may watch is then not known: after UNKNOWN seconds watchers are ended.
- A watcher that does not take what it is offered misses it and is told how many; nobody waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic, time
from typing import Any, Protocol

import msgspec
from django.db import DatabaseError

from msgnode.core.faults import FAULTS

log = logging.getLogger(__name__)

EVERY = 1.0
LOOK_EVERY = 2.0
UNKNOWN = 60.0
MOST = 100
"""Pages that may watch one worker at a time."""
MOST_OF_ONE = 20
"""Of them, pages of one log-in: who opens pages without end shuts out nobody else."""
OVERVIEW = ""


class Watcher(Protocol):
    """One page that is open."""

    key: str
    """The log-in it belongs to."""
    topic: str
    """What it shows."""

    def offer(self, text: str) -> None:
        """Take a text, or miss it."""
        ...

    def end(self, code: int, why: str) -> None:
        """It may watch no longer."""
        ...


class FeedFull(Exception):
    """As many watch as may."""


LOOK_PATIENCE = 1.5
"""Seconds that the figures of everybody wait for the database."""
GONE, NOT_KNOWN, RESTARTS = 4403, 4503, 3001


class Feed:
    """Gathers and hands out.

    Args:
        gather: the figures of this second, by topic.
        look: alarms and lights, for the overview; blocks, and raises DatabaseError.
        allowed: those of some log-ins that may still watch; blocks, and raises DatabaseError.
    """

    def __init__(
        self,
        gather: Callable[[set[str]], Awaitable[dict[str, dict[str, Any]]]],
        look: Callable[[], dict[str, Any]],
        allowed: Callable[[list[str]], set[str]],
        every: float = EVERY,
        look_every: float = LOOK_EVERY,
        most: int = MOST,
    ) -> None:
        self._gather = gather
        self._look = look
        self._allowed = allowed
        self._every = every
        self._look_every = look_every
        self._most = most
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looked_at = float("-inf")
        self._known_at = 0.0
        self._standing: dict[str, Any] | None = None  # None: not looked at for the overview
        self._is_closed = False
        self.is_database_here = True
        self.texts = 0
        self.missed = 0

    @property
    def watching(self) -> int:
        """Pages that are open."""
        return len(self._watchers)

    def join(self, watcher: Watcher) -> None:
        """Begin to offer texts. Raises FeedFull."""
        own = sum(each.key == watcher.key for each in self._watchers)
        if self._is_closed or len(self._watchers) >= self._most or own >= MOST_OF_ONE:
            raise FeedFull
        self._watchers.add(watcher)
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._known_at = monotonic()
            self._task = self._loop.create_task(self._run())

    def leave(self, watcher: Watcher) -> None:
        """Offer nothing more."""
        self._watchers.discard(watcher)

    def close(self) -> None:
        """The worker stops: its pages go elsewhere, and hold it up no longer."""
        self._is_closed = True
        self._end({each.key for each in self._watchers}, RESTARTS, "the node restarts: come back")

    def end_log_in(self, key: str) -> None:
        """A log-in has ended; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, {key}, GONE, "logged out")

    async def _run(self) -> None:
        while self._watchers:
            began = monotonic()
            with FAULTS.kept_to("console"):
                if began - self._looked_at >= self._look_every or self._lacks_standing:
                    self._looked_at = began
                    await self._look_soon()
                if self._lacks_standing:  # the overview came while another page was looked for
                    continue
                self._hand_out(await self._gather({each.topic for each in self._watchers}))
            await asyncio.sleep(max(0.05, self._every - (monotonic() - began)))

    @property
    def _lacks_standing(self) -> bool:
        """Whether the overview is watched and nothing has been looked at for it."""
        is_watched = any(watcher.topic == OVERVIEW for watcher in self._watchers)
        return is_watched and self._standing is None and self.is_database_here

    async def _look_soon(self) -> None:
        """Look again, but let nobody wait for a database that is slow: it counts as away."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_again())
        await asyncio.wait({self._looking}, timeout=LOOK_PATIENCE)
        if self._looking.done():
            done, self._looking = self._looking, None
            done.result()
        else:
            self.is_database_here = False

    async def _look_again(self) -> None:
        keys = [watcher.key for watcher in self._watchers]
        with_overview = any(watcher.topic == OVERVIEW for watcher in self._watchers)
        try:
            may, self._standing = await asyncio.to_thread(self._blocking_look, keys, with_overview)
        except DatabaseError as error:
            self.is_database_here = False
            log.warning("The console cannot ask the database: %s", type(error).__name__)
            if monotonic() - self._known_at > UNKNOWN:
                self._end(set(keys), NOT_KNOWN, "the database is away")
            return
        self.is_database_here = True
        self._known_at = monotonic()
        self._end(set(keys) - may, GONE, "no longer allowed")

    def _blocking_look(
        self, keys: list[str], with_overview: bool
    ) -> tuple[set[str], dict[str, Any] | None]:
        return self._allowed(keys), self._look() if with_overview else None

    def _hand_out(self, figures: dict[str, dict[str, Any]]) -> None:
        texts = {topic: self._text(topic, told) for topic, told in figures.items()}
        self.texts += len(texts)
        for watcher in tuple(self._watchers):
            text = texts.get(watcher.topic)
            if text is not None:  # else it came while the figures were gathered
                with FAULTS.kept_to("console"):
                    watcher.offer(text)

    def _text(self, topic: str, told: dict[str, Any]) -> str:
        whole = {
            "type": "now",
            "at": time(),
            "database": self.is_database_here,
            "watching": len(self._watchers),
            **told,
            **((self._standing or {}) if topic == OVERVIEW else {}),
        }
        return msgspec.json.encode(whole).decode()

    def _end(self, keys: set[str], code: int, why: str) -> None:
        for watcher in [each for each in self._watchers if each.key in keys]:
            with FAULTS.kept_to("console"):
                watcher.end(code, why)
