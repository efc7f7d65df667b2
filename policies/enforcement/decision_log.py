"""The decision log: stores what the decision buffer held, adds up hit counts, purges.

Functions that use the database block: call them in a thread, never on the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import F
from django.utils import timezone

from policies.models import DecisionEntry, RuleHits

from .decision_buffer import Entry

ENTRIES_AT_MOST = 1_000_000


def rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The rows of decisions, as values by column."""
    return [
        {
            "at": datetime.fromtimestamp(entry.at, UTC),
            "direction": entry.direction,
            "effect": entry.effect,
            "passes": entry.passes,
            "shadow": entry.shadow[:255],
            "path": entry.path[:255],
            "version": entry.version,
            "type": entry.type[:16],
            "sender": entry.sender[:600],
            "to": entry.to[:600],
            "username": entry.username[:255],
            "session": entry.session[:64],
            "message": entry.message,
            "errors": entry.errors,
            "microseconds": entry.microseconds,
            "facts": entry.facts,
        }
        for entry in entries
    ]


def add_hits(hits: Counter[tuple[str, ...]]) -> None:
    """Add to the hit counts of rules."""
    now = timezone.now()
    for path, count in hits.items():
        name = "/".join(path)[:255]
        rows = RuleHits.objects.filter(path=name)
        if not rows.update(hits=F("hits") + count, last_hit=now):
            RuleHits.objects.get_or_create(path=name, defaults={"last_hit": now})
            rows.update(hits=F("hits") + count)  # another worker may have changed it meanwhile


def purge(before: datetime) -> int:
    """Delete entries from before a moment, and the oldest beyond ENTRIES_AT_MOST.

    At most 1,000 per transaction.

    Returns:
        The number of deleted entries.
    """
    gone = 0
    while (beyond := DecisionEntry.objects.count() - ENTRIES_AT_MOST) > 0:
        oldest = DecisionEntry.objects.order_by("pk").values_list("pk", flat=True)
        gone += DecisionEntry.objects.filter(pk__in=list(oldest[: min(beyond, 1000)])).delete()[0]
    while True:
        old = list(DecisionEntry.objects.filter(at__lt=before).values_list("pk", flat=True)[:1000])
        if not old:
            return gone
        gone += DecisionEntry.objects.filter(pk__in=old).delete()[0]
