"""Which workers of the node run, in the database: so that what the layer cannot say is known.

A worker is registered before it has a session. A row that does not change for a while belongs to a
worker that is dead, whatever the clocks of the machines say.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from msgnode import models

from .transport import WorkerId

STARTING, READY, DRAINING = "starting", "ready", "draining"


def register(me: WorkerId) -> list[models.Worker]:
    """Enter this worker; the others that are there. Blocks, as everything here."""
    models.Worker.objects.create(
        epoch=me.epoch, name=me.name, host=me.host, pid=me.pid, state=STARTING
    )
    return list(models.Worker.objects.exclude(epoch=me.epoch))


def touch(me: WorkerId, state: str, sessions: int, links: list[dict[str, Any]]) -> None:
    """A sign of life, with how it is."""
    models.Worker.objects.update_or_create(
        epoch=me.epoch,
        defaults={
            "name": me.name,
            "host": me.host,
            "pid": me.pid,
            "state": state,
            "seen_at": timezone.now(),
            "sessions": sessions,
            "links": links,
        },
    )


def list_others(me: WorkerId) -> list[models.Worker]:
    return list(models.Worker.objects.exclude(epoch=me.epoch))


def delete(epoch: str) -> None:
    """The worker has ended: its sessions may be taken over."""
    models.Worker.objects.filter(epoch=epoch).delete()
