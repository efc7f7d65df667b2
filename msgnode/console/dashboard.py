"""The first page of the console: how the node is, in a few numbers, a handful of cheap queries."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from msgnode.models import Alarm, Allocation, ComponentStatus, Session, Subscription

from .components import SILENT_AFTER


def key_numbers(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What templates/admin/index.html shows (the setting DASHBOARD_CALLBACK)."""
    states = dict(
        Session.objects.filter(state__in=("open", "detached"))
        .order_by()
        .values_list("state")
        .annotate(number=Count("pk"))
    )
    standing = list(Alarm.objects.filter(cleared_at=None)[:6])
    components = _by_state(ComponentStatus.objects.all()[:200])
    sessions = _list("session")
    context["numbers"] = [
        _number("Open sessions", states.get("open", 0), f"{sessions}?state__exact=open"),
        _number(
            "Detached sessions", states.get("detached", 0), f"{sessions}?state__exact=detached"
        ),
        _number("Allocated addresses", Allocation.objects.count(), _list("allocation")),
        _number("Subscriptions", Subscription.objects.count(), _list("subscription")),
    ]
    context["alarms"] = standing[:5]
    context["more_alarms"] = len(standing) > 5
    context["alarms_url"] = f"{_list('alarm')}?standing=yes"
    context["components"] = components
    context["components_url"] = _list("componentstatus")
    context["counted_at"] = timezone.now()
    return context


def _list(model: str) -> str:
    return reverse(f"admin:msgnode_{model}_changelist")


def _number(title: str, value: int, url: str) -> dict[str, Any]:
    return {"title": title, "value": value, "url": url}


def _by_state(rows: QuerySet[ComponentStatus]) -> list[dict[str, Any]]:
    """One line a component, the workers' numbers added up."""
    now = timezone.now()
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        is_heard = (now - row.seen_at).total_seconds() <= SILENT_AFTER
        line = lines.setdefault(
            row.name,
            {
                "name": row.name,
                "kind": row.kind,
                "state": "",
                "answered": 0,
                "failed": 0,
                "ok": False,
            },
        )
        line["answered"] += row.answered
        line["failed"] += row.failed
        if is_heard or not line["state"]:
            line["state"] = row.state if is_heard else "not heard of"
            line["ok"] = is_heard
    return list(lines.values())
