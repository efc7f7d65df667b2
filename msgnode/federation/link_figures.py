"""Stores the traffic to and from each peer of this worker, and what its sandbox uses."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from . import store
from .peer_counters import Way
from .peer_link import PeerLink
from .pipe import shown

EVERY = 10.0
"""Seconds between two rows of a peer, over which its rates are averaged."""


class _Counted(NamedTuple):
    at: float
    sent: int
    received: int
    cpu: float


class LinkFigures:
    """One instance per worker.

    Args:
        links: the links to the peers of this worker, by the key of their rows.
        blocking: runs what uses the database.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        links: Mapping[int, PeerLink],
        blocking: Callable[[Callable[[], None]], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._links = links
        self._blocking = blocking
        self._clock = clock
        self._before: dict[int, _Counted] = {}

    async def follow(self) -> None:
        """Store what is due."""
        now = self._clock()
        figures: dict[int, dict[str, Any]] = {}
        for pk, link in self._links.items():
            before = self._before.get(pk)
            if before is None or now - before.at >= EVERY:
                counted = self._before[pk] = _counted(link, now)
                if before is not None:
                    figures[pk] = _figures(link, before, counted)
        for pk in self._before.keys() - self._links.keys():
            del self._before[pk]
        if figures:
            await self._blocking(partial(store.note_figures, figures))


def _counted(link: PeerLink, now: float) -> _Counted:
    counters, sandbox = link.exchange.counters, link.sandbox
    cpu = sandbox.cpu_seconds if sandbox is not None else 0.0
    return _Counted(now, counters.sent, counters.received, cpu)


def _figures(link: PeerLink, before: _Counted, now: _Counted) -> dict[str, Any]:
    seconds = now.at - before.at
    queue, counters, sandbox = link.exchange.queue, link.exchange.counters, link.sandbox
    is_running = sandbox is not None and sandbox.is_running
    return {
        "sent_per_second": round((now.sent - before.sent) / seconds, 1),
        "received_per_second": round((now.received - before.received) / seconds, 1),
        "refused": counters.refused,
        "out": _told(link.exchange.out),
        "in": _told(link.exchange.into),
        "waiting": len(queue),
        "oldest_seconds": round(queue.oldest_seconds, 1),
        "round_trip_ms": round(counters.round_trip * 1000, 1),
        "restarts": counters.restarts,
        "sandbox_bytes": sandbox.memory_bytes if sandbox is not None and is_running else 0,
        # a restarted sandbox counts from zero
        "sandbox_cpu_percent": round(max(0.0, now.cpu - before.cpu) / seconds * 100, 1),
    }


def _told(way: Way) -> dict[str, Any]:
    """The times of the last success and the last failure, as far as there was one."""
    told: dict[str, Any] = {}
    if way.passed_at:
        told["passed_at"] = round(way.passed_at, 1)
    if way.failed_at:
        told |= {"failed_at": round(way.failed_at, 1), "error": shown(way.error)}
    return told
