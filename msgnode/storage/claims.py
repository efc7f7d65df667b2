"""What one worker does for all: a claim in the database that lives as long as its worker's lease.

A worker has a claim while its row names the worker's epoch and that epoch is registered. So a claim
needs no renewal of its own: who takes over a dead worker's sessions has freed its claims as well.
Whoever writes by right of a claim checks it inside the transaction, so that a worker that was
frozen, and has it no longer, writes nothing. All functions block.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from msgnode import models
from msgnode.bus.writing import Call, Writer

IDLE = "10s"
"""After so long PostgreSQL ends a transaction that has checked a claim and does nothing more."""

_RUNS = models.Worker.objects.filter(epoch=OuterRef("epoch"))


class NotHolder(Exception):
    """Another worker has the claim now, or none."""


class WorkerClaim:
    """The claim of a name, for this worker. It is written in the worker's group commits."""

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
    """Whether this epoch has the claim, which it takes if nobody else that runs has it."""
    claims = models.WorkerClaim.objects.filter(name=name)
    row = claims.annotate(runs=Exists(_RUNS)).values_list("epoch", "runs").first()
    if row is not None and (row[0] == epoch or row[1]):
        return row[0] == epoch
    with transaction.atomic():
        models.WorkerClaim.objects.get_or_create(name=name)
        return bool(claims.filter(Q(epoch="") | ~Exists(_RUNS)).update(epoch=epoch))


def check(name: str, epoch: str) -> None:
    """Whether this epoch has the claim, until the transaction ends. Raises NotHolder."""
    rows = models.WorkerClaim.objects.filter(Exists(_RUNS), name=name, epoch=epoch)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [IDLE]
            )
        rows = rows.select_for_update()
    if not rows.values_list("name"):
        raise NotHolder


def held(names: Iterable[str]) -> set[str]:
    """Those of these claims that a worker has which runs."""
    rows = models.WorkerClaim.objects.filter(Exists(_RUNS), name__in=list(names))
    return set(rows.values_list("name", flat=True))


def release(name: str, epoch: str) -> None:
    """Give the claim up."""
    models.WorkerClaim.objects.filter(name=name, epoch=epoch).update(epoch="")
