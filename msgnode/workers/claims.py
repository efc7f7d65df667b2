"""What one worker does for all: a claim in the database that lives as long as its lease.

A worker has a claim while its row names the worker's epoch and that epoch is registered. So a claim
needs no renewal of its own: who takes over a dead worker's sessions has freed its claims as well.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from msgnode import models
from msgnode.bus.writing import Call, Writer


class WorkerClaim:
    """The claim of a name, for this worker. `submit` runs in the worker's group commits."""

    def __init__(self, name: str, epoch: str, writer: Writer) -> None:
        self._name = name
        self._epoch = epoch
        self._writer = writer

    async def take(self) -> bool:
        """Whether this worker has it, from now on or still."""
        found: list[bool] = []

        def look() -> None:
            found[:] = [take(self._name, self._epoch)]

        await self._writer.submit(Call(look))
        return found[0]

    async def release(self) -> None:
        """Leave it to another worker."""
        await self._writer.submit(Call(lambda: release(self._name, self._epoch)))


def take(name: str, epoch: str) -> bool:
    """Whether this epoch has the claim, which it takes if nobody else that runs has it. Blocks."""
    mine = models.WorkerClaim.objects.filter(name=name)
    if mine.filter(epoch=epoch).exists():
        return True
    runs = models.Worker.objects.filter(epoch=OuterRef("epoch"))
    with transaction.atomic():
        models.WorkerClaim.objects.get_or_create(name=name)
        free = mine.filter(Q(epoch="") | ~Exists(runs))
        return bool(free.update(epoch=epoch))


def release(name: str, epoch: str) -> None:
    """Give the claim up. Blocks."""
    models.WorkerClaim.objects.filter(name=name, epoch=epoch).update(epoch="")
