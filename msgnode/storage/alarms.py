"""Alarms: what an operator should see. One row a kind and subject while it stands."""

from __future__ import annotations

import os
from collections.abc import Iterable

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from msgnode import models

POOL_EXHAUSTED = "pool-exhausted"


def raise_alarm(kind: str, subject: str, text: str) -> None:
    """Raise an alarm, or count a standing one up. Blocks: not for the event loop."""
    now = timezone.now()
    with transaction.atomic():
        standing = models.Alarm.objects.filter(kind=kind, subject=subject[:255], cleared_at=None)
        fields = {"text": text[:500], "last_at": now}
        if not standing.update(count=F("count") + 1, **fields):
            models.Alarm.objects.create(kind=kind, subject=subject[:255], **fields)


def clear_alarm(kind: str, subject: str) -> None:
    """The cause is gone. Blocks: not for the event loop."""
    models.Alarm.objects.filter(kind=kind, subject=subject[:255], cleared_at=None).update(
        cleared_at=timezone.now()
    )


def clear_of_ended(kinds: Iterable[str], host: str) -> None:
    """Clear what workers of this host, whose processes have ended, raised about themselves. Their
    subjects begin with `host:pid`. Blocks: for the start of a worker."""
    standing = models.Alarm.objects.filter(kind__in=tuple(kinds), cleared_at=None)
    for alarm in standing.filter(subject__startswith=f"{host}:"):
        pid = alarm.subject.removeprefix(f"{host}:").partition(" ")[0]
        if pid.isdigit() and (int(pid) == os.getpid() or not _runs(int(pid))):
            clear_alarm(alarm.kind, alarm.subject)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
