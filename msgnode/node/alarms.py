"""Raises and clears the alarms of a worker, from the event loop or from other threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgnode.bus.writing import Call, Together, Writer
from msgnode.storage import alarms

log = logging.getLogger(__name__)


class Alarms:
    """Writes alarms in the worker's group commits.

    Args:
        writer: the worker's writer.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exhausted_pools: set[str] = set()

    def begin(self) -> None:
        """Accept alarms of other threads from now on. Call it on the event loop."""
        self._loop = asyncio.get_running_loop()

    def raise_alarm(self, kind: str, subject: str, text: str) -> None:
        """Raise an alarm from the event loop."""
        log.warning("Alarm: %s", text, extra={"kind": kind})
        self._writer.submit(Together(alarms.raise_alarms, alarms.Raised(kind, subject, text)))

    def clear_alarm(self, kind: str, subject: str) -> None:
        """Clear an alarm from the event loop."""
        self._writer.submit(Call(lambda: alarms.clear_alarm(kind, subject)))

    def raise_from_thread(self, kind: str, subject: str, text: str) -> None:
        """Raise an alarm from another thread."""
        self._on_loop(self.raise_alarm, kind, subject, text)

    def clear_from_thread(self, kind: str, subject: str) -> None:
        """Clear an alarm from another thread."""
        self._on_loop(self.clear_alarm, kind, subject)

    def watch_pool(self, scheme: str, fault: str) -> None:
        """Raise an alarm if a pool has a fault, else clear it."""
        if fault:
            self._exhausted_pools.add(scheme)
            self.raise_alarm(alarms.POOL_EXHAUSTED, scheme, fault)
        elif scheme in self._exhausted_pools:
            self._exhausted_pools.discard(scheme)
            self.clear_alarm(alarms.POOL_EXHAUSTED, scheme)

    def _on_loop(self, call: Callable[..., None], *arguments: str) -> None:
        """Run a call on the event loop, unless that has ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)
