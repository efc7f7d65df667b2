"""Stores the state of a worker's components every few seconds, for the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from django.utils import timezone

from msgnode import models
from msgnode.bus.periodic import every
from msgnode.bus.ports import ComponentInfo
from msgnode.bus.writing import Call, Writer
from msgnode.core.redaction import cut, without_persons

_FIELDS = ("kind", "address", "state", "since", "answered", "failed", "last_error", "seen_at")
_GONE_AFTER = timedelta(minutes=5)


class StatusReport:
    """Writes the state of the components where the console finds it."""

    def __init__(
        self,
        writer: Writer,
        worker: str,
        component_infos: Callable[[], Awaitable[list[ComponentInfo]]],
        every: float = 5.0,
    ) -> None:
        self._writer = writer
        self._worker = worker
        self._component_infos = component_infos
        self._every = every

    async def run(self) -> None:
        """Runs until cancelled."""
        says = "The status of the components could not be written"
        await every(self._every, self.write, "status", says, is_first_at_once=True)

    async def write(self) -> None:
        """Write the row of each component, and delete rows that are no longer updated."""
        now = timezone.now()
        rows = [
            models.ComponentStatus(
                worker=self._worker,
                name=info.name,
                kind=info.kind,
                address=info.address,
                state=info.state,
                since=info.since,
                answered=info.answered,
                failed=info.failed,
                last_error=without_persons(cut(info.last_error)),
                seen_at=now,
            )
            for info in await self._component_infos()
        ]

        def save() -> None:
            models.ComponentStatus.objects.filter(seen_at__lt=now - _GONE_AFTER).delete()
            models.ComponentStatus.objects.bulk_create(
                rows,
                update_conflicts=True,
                update_fields=_FIELDS,
                unique_fields=("worker", "name"),
            )

        await self._writer.submit(Call(save))
