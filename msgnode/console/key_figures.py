"""How the node is, in a few cheap queries: for the overview, `node_status` and `/api/v1/status`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count
from django.utils import timezone

from msgnode.models import (
    Alarm,
    Allocation,
    Ban,
    ComponentStatus,
    PoolAddress,
    Session,
    Subscription,
    Worker,
)

SILENT_AFTER = 15.0
"""Seconds after which a worker that reports every five is taken for gone; if its lease is longer,
when that is over."""
MOST, ALARMS_TOLD = 500, 50
"""Components that are read, and alarms that are told."""
_WORDS = {
    "anonymous": "Anybody may connect and send messages without an identity (ADMISSION=anonymous).",
    "identified": "Every message needs a valid identity (ADMISSION=identified).",
    "strict": "Every session must be logged in (ADMISSION=strict).",
}


def live_sessions() -> dict[str, int]:
    """How many sessions are open and how many detached."""
    states = (Session.State.OPEN, Session.State.DETACHED)
    found = dict(
        Session.objects.filter(state__in=states)
        .order_by()
        .values_list("state")
        .annotate(number=Count("pk"))
    )
    return {state.value: found.get(state.value, 0) for state in states}


def is_heard(status: ComponentStatus | Worker, now: datetime) -> bool:
    """Whether the worker that reported this is alive."""
    limit = max(SILENT_AFTER, settings.NODE["WORKER_TIMEOUT"])
    return (now - status.seen_at).total_seconds() <= limit


def links(now: datetime) -> list[dict[str, Any]]:
    """One line per worker: its state, its sessions, its lease, its links to others.

    The lease is in seconds that it still runs; negative: it has ended.
    """
    return [
        {
            "worker": row.name,
            "state": row.state if is_heard(row, now) else "not heard of",
            "sessions": row.sessions,
            "lease_seconds": round((row.lease_until - now).total_seconds(), 1),
            "links": row.links,
        }
        for row in Worker.objects.all()
    ]


def components(now: datetime) -> list[dict[str, Any]]:
    """One line a component, connector, protostub or stub, the numbers of the workers added up."""
    lines: dict[str, dict[str, Any]] = {}
    for row in ComponentStatus.objects.all()[:MOST]:
        line = lines.setdefault(
            row.name,
            {
                "name": row.name,
                "kind": row.kind,
                "address": row.address,
                "state": "not heard of",
                "is_heard": False,
                "since": row.since,
                "answered": 0,
                "failed": 0,
                "last_error": "",
                "workers": [],
            },
        )
        if is_heard(row, now):
            line.update(state=row.state, is_heard=True)
            line["workers"].append(row.worker)
        line["since"] = min(line["since"], row.since)
        line["answered"] += row.answered
        line["failed"] += row.failed
        line["last_error"] = row.last_error or line["last_error"]
    return list(lines.values())


def admission_summary() -> dict[str, Any]:
    """{mode, domains, is_open, text}: `is_open` if some runtimes need no identity."""
    mode, domains = settings.ADMISSION, dict(settings.ADMISSION_DOMAINS)
    others = "; ".join(f"{name}: {word}" for name, word in sorted(domains.items()))
    text = _WORDS[mode] + (f" Runtimes of single domains: {others}." if others else "")
    is_open = "anonymous" in (mode, *domains.values())
    return {"mode": mode, "domains": domains, "is_open": is_open, "text": text}


def node_status() -> dict[str, Any]:
    """How the node is: sessions, components, workers, alarms."""
    now = timezone.now()
    lines = components(now)
    in_force = Ban.objects.exclude(expires_at__lte=now)
    alarms = Alarm.objects.filter(cleared_at=None)
    return {
        "at": now,
        "workers": sorted({worker for line in lines for worker in line["workers"]}),
        "joined": links(now),
        "admission": admission_summary(),
        "sessions": live_sessions(),
        "allocations": Allocation.objects.count(),
        "subscriptions": Subscription.objects.count(),
        "pool_addresses": PoolAddress.objects.count(),
        "bans": in_force.count(),
        "components": lines,
        "alarms": list(
            alarms.values("kind", "subject", "text", "count", "raised_at", "last_at")[:ALARMS_TOLD]
        ),
    }
