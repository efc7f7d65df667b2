"""How the node is, in one document: for `manage.py node_status` and `/api/v1/status`."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from msgnode.models import Alarm, Allocation, Ban, PoolAddress, Subscription

from . import key_figures
from .admission_summary import admission_summary

ALARMS_TOLD = 50


def node_status() -> dict[str, Any]:
    """How the node is: sessions, components, workers, alarms."""
    now = timezone.now()
    components = key_figures.components(now)
    in_force = Ban.objects.exclude(expires_at__lte=now)
    alarms = Alarm.objects.filter(cleared_at=None)
    return {
        "at": now,
        "workers": sorted({worker for line in components for worker in line["workers"]}),
        "joined": key_figures.links(now),
        "admission": admission_summary(),
        "sessions": key_figures.live_sessions(),
        "allocations": Allocation.objects.count(),
        "subscriptions": Subscription.objects.count(),
        "pool_addresses": PoolAddress.objects.count(),
        "bans": in_force.count(),
        "components": components,
        "alarms": list(
            alarms.values("kind", "subject", "text", "count", "raised_at", "last_at")[:ALARMS_TOLD]
        ),
    }
