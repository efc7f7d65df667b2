"""The control outbox: changes made outside the workers, applied by every worker within a second.

Whoever makes such a change (the console, Celery, a shell) posts a row in the same transaction;
every worker reads new rows and passes each to the handler of its kind, idempotently. The order of
ids is not reliable, because commits overlap: a reader re-reads a window of time and remembers what
it has applied.

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
from msgnode.bus.serving import LEASE_CLOCK
from msgnode.bus.writing import Call, Writer

log = logging.getLogger(__name__)

Handler = Callable[[dict[str, Any]], None]

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
        self._began = self._read_at = _now()

    async def run(self) -> None:
        """Run until cancelled; if the database is out of reach, the next round tries again."""
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.read()
            except Exception as error:
                log.warning("Control messages could not be read: %s", error)

    async def read(self) -> None:
        """Apply new rows, each once."""
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
        for id_, kind, payload in rows:
            if id_ in self._applied:
                continue
            self._applied[id_] = None
            self._apply(kind, payload)
        while len(self._applied) > 100_000:
            self._applied.pop(next(iter(self._applied)))

    def _apply(self, kind: str, payload: dict[str, Any]) -> None:
        handler = self._handlers.get(kind)
        if handler is None:
            log.warning("Nobody handles the control message %s.", kind)
            return
        try:
            handler(payload)
        except Exception:
            log.exception("A control message could not be applied.", extra={"kind": kind})


def _now() -> float:
    """Seconds of a clock that runs on while the process is stopped."""
    return time.clock_gettime(LEASE_CLOCK)
