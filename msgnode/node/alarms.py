"""Raises and clears the alarms of a worker, from the event loop or from other threads.

What cannot be written while the database is away is written once it is back, in order.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgnode.bus.writing import Call, Change, Together, Writer
from msgnode.core.errors import Unavailable
from msgnode.core.faults import FAULTS
from msgnode.models import Alarm
from msgnode.storage import alarms
from msgnode.storage.fence import Fenced
from msgnode.workers.worker_process import runs

log = logging.getLogger(__name__)

KEPT = 20_000
"""Alarms that wait to be written; beyond it the oldest are counted as lost."""
AGAIN = 5.0
"""Seconds until what could not be written is tried again."""


class Alarms:
    """Writes alarms in the worker's group commits.

    Args:
        writer: the worker's writer.
        again: seconds until what could not be written is tried again.
    """

    def __init__(self, writer: Writer, again: float = AGAIN) -> None:
        self._writer = writer
        self._again = again
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exhausted_pools: set[str] = set()
        self._waiting: deque[Change] = deque()
        self._writing: asyncio.Future[list[Any]] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Accept alarms of other threads from now on. Call it on the event loop."""
        self._loop = asyncio.get_running_loop()

    def raise_alarm(self, kind: str, subject: str, text: str) -> None:
        """Raise an alarm from the event loop."""
        log.warning("Alarm: %s", text, extra={"kind": kind})
        self._write(Together(alarms.raise_alarms, alarms.Raised(kind, subject, text)))

    def clear_alarm(self, kind: str, subject: str) -> None:
        """Clear an alarm from the event loop."""
        self._write(Call(lambda: alarms.clear_alarm(kind, subject)))

    def raise_from_thread(self, kind: str, subject: str, text: str) -> None:
        """Raise an alarm from another thread."""
        self._on_loop(self.raise_alarm, kind, subject, text)

    def clear_from_thread(self, kind: str, subject: str) -> None:
        """Clear an alarm from another thread."""
        self._on_loop(self.clear_alarm, kind, subject)

    async def settled(self) -> None:
        """Wait until all is written, or the database is away."""
        while self._writing is not None:
            await asyncio.wait({self._writing})

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

    # --- one after another ------------------------------------------------------------------------

    def _write(self, change: Change) -> None:
        self._waiting.append(change)
        self._drop_oldest()
        self._submit()

    def _drop_oldest(self) -> None:
        """Drop what waits beyond the limit, and count it."""
        while len(self._waiting) > KEPT:
            self._waiting.popleft()
            FAULTS.note("alarm that could not be written")

    def _submit(self) -> None:
        """Write what waits, once what was submitted before is written."""
        if self._writing is not None or self._timer is not None or not self._waiting:
            return
        changes, self._waiting = list(self._waiting), deque()
        self._writing = asyncio.gather(*map(self._writer.submit, changes), return_exceptions=True)
        self._writing.add_done_callback(partial(self._written, changes))

    def _written(self, changes: list[Change], done: asyncio.Future[list[Any]]) -> None:
        self._writing = None
        if done.cancelled():
            return
        away = [isinstance(each, Unavailable) for each in done.result()]
        if any(isinstance(each, Fenced) for each in done.result()):
            return  # this worker writes no more
        if True in away:  # and what came after it once more: a clearing must not come first
            self._waiting.extendleft(reversed(changes[away.index(True) :]))
            self._drop_oldest()
            self._timer = asyncio.get_running_loop().call_later(self._again, self._try_again)
        else:
            self._submit()

    def _try_again(self) -> None:
        self._timer = None
        self._submit()


def clear_of_ended(kinds: Iterable[str], host: str) -> None:
    """Clear the alarms that ended worker processes of this host raised about themselves.

    Their subjects begin with `host:pid`. Blocks: for use at the start of a worker.
    """
    standing = Alarm.objects.filter(kind__in=tuple(kinds), cleared_at=None)
    for alarm in standing.filter(subject__startswith=f"{host}:"):
        pid = alarm.subject.removeprefix(f"{host}:").partition(" ")[0]
        if pid.isdigit() and (int(pid) == os.getpid() or not runs(int(pid))):
            alarms.clear_alarm(alarm.kind, alarm.subject)
