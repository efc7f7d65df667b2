"""The rows of the node's workers: who they are, and until when their leases run.

A worker is registered before it has a session. Leases end by the database's clock, so that the
clocks of machines need not agree. Whoever takes over a worker's sessions deletes its row first;
from then on the worker's writes are refused (storage/fence.py), and it is never registered again
under that epoch. All functions block.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper
from django.db.models.functions import Now

from msgnode import models
from msgnode.resources import version

from .worker_process import WorkerId

STARTING, READY, DRAINING = "starting", "ready", "draining"


def register(me: WorkerId, lease: float) -> list[models.Worker]:
    """Register this worker with a lease of so many seconds; return the other workers."""
    with transaction.atomic():
        models.Worker.objects.create(
            epoch=me.epoch,
            name=me.name,
            host=me.host,
            pid=me.pid,
            state=STARTING,
            version=version(),
        )
        models.Worker.objects.filter(epoch=me.epoch).update(
            started_at=Now(), seen_at=Now(), lease_until=_from_now(lease)
        )
    return list_others(me)


def renew(epoch: str, lease: float, **figures: Any) -> bool:
    """Renew the lease for so many seconds from now, and store the worker's figures.

    Returns:
        False if the epoch is retired.
    """
    row = models.Worker.objects.filter(epoch=epoch)
    return bool(row.update(seen_at=Now(), lease_until=_from_now(lease), **figures))


def is_registered(epoch: str) -> bool:
    """Whether a worker has not been retired."""
    return models.Worker.objects.filter(epoch=epoch).exists()


def list_others(me: WorkerId) -> list[models.Worker]:
    """The other workers that have not been retired."""
    return list(models.Worker.objects.exclude(epoch=me.epoch))


def ready_sessions() -> dict[str, int]:
    """The number of sessions of each worker that is ready and holds its lease, by epoch."""
    rows = models.Worker.objects.filter(state=READY, lease_until__gt=Now())
    return dict(rows.values_list("epoch", "sessions"))


def retire(epoch: str) -> bool:
    """Retire a worker that has certainly ended, so that its sessions may be taken over.

    Returns:
        Whether it had not left by itself, and had not been retired before.
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
