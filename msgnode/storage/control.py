"""The control outbox: changes made outside the workers, applied by every worker within a second.

Whoever makes such a change (the console, Celery, a shell) posts a row in the same transaction;
every worker reads new rows and passes each to the handler of its kind, idempotently. The order of
ids is not reliable, because commits overlap: a reader re-reads a window of time and remembers what
it has applied. A change that could not be applied, because the database failed, is tried again.

Only the database's clock tells when a row was posted, because the clocks of machines differ.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from msgnode import models
from msgnode.bus.periodic import every
from msgnode.bus.ports import LEASE_CLOCK
from msgnode.bus.writing import Call, Writer
from msgnode.core.faults import FAULTS

log = logging.getLogger(__name__)

Handler = Callable[[dict[str, Any]], "asyncio.Future[Any] | None"]
"""Applies a change; if that takes time it gives a future, which raises if it could not be done."""

MESSAGE = "message"
"""Where a handler finds the number of the row in its payload, the same at every worker."""

_WINDOW = 60.0  # seconds that a transaction may take
_SLACK = 5.0  # seconds before the start of a reader


def post(kind: str, **payload: Any) -> None:
    """Post a change for the workers, as part of the caller's transaction."""
    models.ControlMessage.objects.create(kind=kind, payload=payload, created_at=Now())


class ControlReader:
    """One instance per worker.

    `handlers` are by kind; a row of an unknown kind is logged and skipped.
    """

    def __init__(self, writer: Writer, handlers: dict[str, Handler], every: float = 0.5) -> None:
        self._writer = writer
        self._handlers = handlers
        self._every = every
        self._applied: dict[int, None] = {}
        self._again: dict[str, tuple[str, dict[str, Any]]] = {}  # what could not be applied yet
        self._reading = asyncio.Lock()
        self._began = self._read_at = _now()

    async def run(self) -> None:
        """Run until cancelled; if the database is out of reach, the next round tries again."""
        await every(self._every, self.read, "control", "Control messages could not be read")

    async def read(self) -> None:
        """Apply new rows, each once, and wait until they have taken effect.

        Raises:
            NodeError: the database did not answer.
        """
        async with self._reading:
            await self._read()

    async def _read(self) -> None:
        rows: list[tuple[int, str, dict[str, Any]]] = []
        now = _now()
        seconds = min(now - self._began, now - self._read_at + _WINDOW) + _SLACK

        def look() -> None:
            rows.clear()
            new = models.ControlMessage.objects.filter(
                created_at__gte=Now() - timedelta(seconds=seconds)
            )
            rows.extend(new.order_by("id").values_list("id", "kind", "payload"))

        await self._writer.submit(Call(look))
        self._read_at = now
        again, self._again = self._again, {}
        under_way = [self._apply(kind, payload) for kind, payload in again.values()]
        for id_, kind, payload in rows:
            if id_ in self._applied:
                continue
            self._applied[id_] = None
            under_way.append(self._apply(kind, {**payload, MESSAGE: id_}))
        while len(self._applied) > 100_000:
            self._applied.pop(next(iter(self._applied)))
        if waiting := [each for each in under_way if each is not None]:
            await asyncio.wait(waiting)

    def _apply(self, kind: str, payload: dict[str, Any]) -> asyncio.Future[Any] | None:
        handler = self._handlers.get(kind)
        if handler is None:
            log.warning("Nobody handles the control message %s.", kind)
            return None
        try:
            applying = handler(payload)
        except Exception as error:
            log.error("The control message %s could not be applied.", kind)
            FAULTS.note("control message", error)
            return None
        if applying is not None:
            applying.add_done_callback(lambda done: self._try_again(done, kind, payload))
        return applying

    def _try_again(self, done: asyncio.Future[Any], kind: str, payload: dict[str, Any]) -> None:
        """Keep what could not be applied, the same thing once, for the next round."""
        if done.cancelled() or done.exception() is not None:
            log.error("The control message %s could not be applied yet; it is tried again.", kind)
            said = sorted((name, each) for name, each in payload.items() if name != MESSAGE)
            self._again[f"{kind} {said}"] = kind, payload


def _now() -> float:
    """Seconds of a clock that runs on while the process is stopped."""
    return time.clock_gettime(LEASE_CLOCK)
