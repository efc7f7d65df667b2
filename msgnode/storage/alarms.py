"""Alarms: what an operator should see. One row a kind and subject while it stands."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from msgnode import models
from msgnode.core.redaction import cut

POOL_EXHAUSTED = "pool-exhausted"


def raise_alarm(kind: str, subject: str, text: str) -> None:
    """Raise an alarm, or count a standing one up. Blocks: not for the event loop."""
    now = timezone.now()
    subject, text = cut(subject), cut(text)
    with transaction.atomic():
        standing = models.Alarm.objects.filter(kind=kind, subject=subject[:255], cleared_at=None)
        fields = {"text": text[:500], "last_at": now}
        if not standing.update(count=F("count") + 1, **fields):
            models.Alarm.objects.create(kind=kind, subject=subject[:255], **fields)


def clear_alarm(kind: str, subject: str) -> None:
    """The cause is gone. Blocks: not for the event loop."""
    models.Alarm.objects.filter(kind=kind, subject=cut(subject)[:255], cleared_at=None).update(
        cleared_at=timezone.now()
    )
