"""The first page of the console: how the node is, in a few numbers."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from msgnode.models import Alarm, Allocation, Subscription

from . import key_figures
from .admission_summary import admission_summary
from .policy_summary import policy_summary

SEES = "msgnode.view_session"
"""The right without which the page has nothing to show."""


def key_numbers(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What templates/admin/index.html shows (the setting DASHBOARD_CALLBACK)."""
    context["has_role"] = request.user.has_perm(SEES)
    if not context["has_role"]:
        return context
    now = timezone.now()
    live = key_figures.live_sessions()
    standing = list(Alarm.objects.filter(cleared_at=None)[:6])
    sessions = _list("session")
    context["numbers"] = [
        _number("Open sessions", live["open"], f"{sessions}?state__exact=open"),
        _number("Detached sessions", live["detached"], f"{sessions}?state__exact=detached"),
        _number("Allocated addresses", Allocation.objects.count(), _list("allocation")),
        _number("Subscriptions", Subscription.objects.count(), _list("subscription")),
    ]
    context["alarms"] = standing[:5]
    context["more_alarms"] = len(standing) > 5
    context["alarms_url"] = f"{_list('alarm')}?standing=yes"
    context["components"] = key_figures.components(now)
    context["components_url"] = _list("componentstatus")
    context["policy"] = policy_summary()
    context["admission"] = admission_summary()
    context["counted_at"] = now
    return context


def _list(model: str) -> str:
    return reverse(f"admin:msgnode_{model}_changelist")


def _number(title: str, value: int, url: str) -> dict[str, Any]:
    return {"title": title, "value": value, "url": url}
