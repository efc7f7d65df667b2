"""The workers of a node in the database, one row each: who they are, and how long their leases run.

A worker is entered before it has a session. A lease ends by the database's clock, so that no two
machines have to agree on the time. Who takes over a worker's sessions deletes its row first; from
then on nothing that worker writes is taken (storage/fence.py), and it is never entered again under
that epoch. All functions block.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper
from django.db.models.functions import Now

from msgnode import models

from .worker_process import WorkerId

STARTING, READY, DRAINING = "starting", "ready", "draining"


def register(me: WorkerId, lease: float) -> list[models.Worker]:
    """Enter this worker with a lease of so many seconds; the others that are there."""
    with transaction.atomic():
        models.Worker.objects.create(
            epoch=me.epoch, name=me.name, host=me.host, pid=me.pid, state=STARTING
        )
        models.Worker.objects.filter(epoch=me.epoch).update(
            started_at=Now(), seen_at=Now(), lease_until=_from_now(lease)
        )
    return list_others(me)


def renew(epoch: str, lease: float, **figures: Any) -> bool:
    """Have the lease run for so many seconds from now, and note how the worker is.

    Returns:
        False if the epoch is retired.
    """
    row = models.Worker.objects.filter(epoch=epoch)
    return bool(row.update(seen_at=Now(), lease_until=_from_now(lease), **figures))


def is_registered(epoch: str) -> bool:
    """Whether nobody has retired a worker."""
    return models.Worker.objects.filter(epoch=epoch).exists()


def list_others(me: WorkerId) -> list[models.Worker]:
    """The workers besides this one that nobody has retired."""
    return list(models.Worker.objects.exclude(epoch=me.epoch))


def retire(epoch: str) -> bool:
    """The worker has ended for certain: its sessions may be taken over.

    Returns:
        Whether it had not taken leave, and nobody had retired it yet.
    """
    deleted, _ = models.Worker.objects.filter(epoch=epoch).delete()
    return deleted > 0


def retire_expired(epoch: str, margin: float) -> bool:
    """Retire a worker whose lease ended at least so many seconds ago; whether it is retired now."""
    rows = models.Worker.objects.filter(epoch=epoch)
    rows.filter(lease_until__lt=_from_now(-margin)).delete()
    return not rows.exists()


def _from_now(seconds: float) -> ExpressionWrapper:
    return ExpressionWrapper(Now() + timedelta(seconds=seconds), output_field=DateTimeField())
