"""Alarms: conditions an operator should know of. One row per kind and subject while it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from msgnode import models
from msgnode.core.json_text import storable
from msgnode.core.redaction import cut

POOL_EXHAUSTED = "pool-exhausted"
PEER_PENDING = "peer-pending"
STUB_CHANGED = "stub-changed"
STUB_UNSIGNED = "stub-unsigned"
FAILING_ALARM = "stub-failing"
STUCK_ALARM = "peer-stuck"
TURN_DOWN = "turn-down"

STANDING_AT_MOST = 1_000
"""Most standing alarms of one kind."""
OTHERS = "others"
"""The subject of the one alarm of a kind that stands for all beyond that limit."""

_AT_ONCE = 500


class Raised(NamedTuple):
    """One alarm to raise."""

    kind: str
    subject: str
    text: str


def raise_alarm(kind: str, subject: str, text: str) -> None:
    """Raise an alarm, or increase the count of a standing one. Blocks: not for the event loop."""
    raise_alarms([Raised(kind, subject, text)])


def raise_alarms(raised: Iterable[Raised]) -> None:
    """Raise many; of the same kind and subject the last text is kept. Blocks."""
    now = timezone.now()
    times: Counter[tuple[str, str]] = Counter()
    texts: dict[tuple[str, str], str] = {}
    for kind, subject, text in raised:
        subject = _named(subject)
        times[kind, subject] += 1
        texts[kind, subject] = storable(cut(text)[:500])
    alike: dict[tuple[str, int, str], list[str]] = {}  # kind, times, text -> subjects
    for (kind, subject), count in times.items():
        alike.setdefault((kind, count, texts[kind, subject]), []).append(subject)
    with transaction.atomic():
        for (kind, count, text), subjects in alike.items():
            for start in range(0, len(subjects), _AT_ONCE):
                _raise(kind, count, text, subjects[start : start + _AT_ONCE], now)


def _named(subject: str) -> str:
    """A subject as it is stored: strangers may have said it."""
    return str(storable(cut(subject)[:255]))


def _raise(kind: str, count: int, text: str, subjects: list[str], now: datetime) -> None:
    standing = models.Alarm.objects.filter(kind=kind, subject__in=subjects, cleared_at=None)
    counted = set(standing.values_list("subject", flat=True))
    if counted:
        standing.update(count=F("count") + count, text=text, last_at=now)
    new = [subject for subject in subjects if subject not in counted]
    if not new:
        return
    room = STANDING_AT_MOST - models.Alarm.objects.filter(kind=kind, cleared_at=None).count()
    fitting = new if new == [OTHERS] else new[: max(0, room)]
    models.Alarm.objects.bulk_create(
        models.Alarm(kind=kind, subject=subject, text=text, count=count, last_at=now)
        for subject in fitting
    )
    if beyond := len(new) - len(fitting):
        _raise(kind, count * beyond, text, [OTHERS], now)


def clear_alarm(kind: str, subject: str) -> None:
    """Clear an alarm. Blocks: not for the event loop."""
    models.Alarm.objects.filter(kind=kind, subject=_named(subject), cleared_at=None).update(
        cleared_at=timezone.now()
    )
