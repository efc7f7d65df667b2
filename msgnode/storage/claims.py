"""Claims: the right of one worker to do something for all, stored in the database.

A worker has a claim while its row names the worker's epoch and that epoch is registered. So a claim
needs no renewal of its own: taking over a dead worker's sessions frees its claims as well. Whoever
writes on the basis of a claim checks it inside the transaction, so that a worker that was frozen
and has lost the claim writes nothing. All functions block.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from msgnode import models
from msgnode.bus.writing import Call, Writer, result_of

IDLE = "10s"
"""After this time PostgreSQL ends a transaction that has checked a claim and is idle."""

_RUNS = models.Worker.objects.filter(epoch=OuterRef("epoch"))


class NotHolder(Exception):
    """The claim is held by another worker, or by none."""


class WorkerClaim:
    """This worker's claim of a name, written in the worker's group commits."""

    def __init__(self, name: str, epoch: str, writer: Writer) -> None:
        self._name = name
        self._epoch = epoch
        self._writer = writer

    async def take(self) -> bool:
        """Take the claim if it is free; return whether this worker has it."""
        return await result_of(self._writer, lambda: take(self._name, self._epoch))

    async def release(self) -> None:
        """Release the claim."""
        await self._writer.submit(Call(lambda: release(self._name, self._epoch)))


def take(name: str, epoch: str) -> bool:
    """Take the claim for an epoch if no running worker has it; whether the epoch has it."""
    claims = models.WorkerClaim.objects.filter(name=name)
    row = claims.annotate(runs=Exists(_RUNS)).values_list("epoch", "runs").first()
    if row is not None and (row[0] == epoch or row[1]):
        return row[0] == epoch
    with transaction.atomic():
        models.WorkerClaim.objects.get_or_create(name=name)
        return bool(claims.filter(Q(epoch="") | ~Exists(_RUNS)).update(epoch=epoch))


def check(name: str, epoch: str) -> None:
    """Lock the claim until the transaction ends. Raises NotHolder if the epoch has lost it."""
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
    """Those of these claims that a running worker holds."""
    rows = models.WorkerClaim.objects.filter(Exists(_RUNS), name__in=list(names))
    return set(rows.values_list("name", flat=True))


def release(name: str, epoch: str) -> None:
    """Release the claim."""
    models.WorkerClaim.objects.filter(name=name, epoch=epoch).update(epoch="")
