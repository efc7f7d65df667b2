"""The control outbox: changes made outside the workers, applied by every worker within a second.

Whoever changes something (the console, Celery, a shell) posts a row in the same transaction; every
worker reads new rows and gives each to the handler of its kind, idempotently. Ids are no order to
rely on, because commits overlap: a reader looks back over a window and remembers what it applied.

When a row was posted is told by the clock of the database alone, because those of machines differ.
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
    """Leave a change for the workers. Takes part in the caller's transaction."""
    models.ControlMessage.objects.create(kind=kind, payload=payload, created_at=Now())


class ControlReader:
    """One instance per worker.

    `handlers` by kind; a row of an unknown kind is logged and passed over."""

    def __init__(self, writer: Writer, handlers: dict[str, Handler], every: float = 0.5) -> None:
        self._writer = writer
        self._handlers = handlers
        self._every = every
        self._applied: dict[int, None] = {}
        self._began = self._read_at = _now()

    async def run(self) -> None:
        """Runs until cancelled; a database out of reach is tried again in the next round."""
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.read()
            except Exception as error:
                log.warning("Control messages could not be read: %s", error)

    async def read(self) -> None:
        """Apply what is new, once."""
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
    """Seconds on a clock that goes on while the process is stopped."""
    return time.clock_gettime(LEASE_CLOCK)
