"""The first page of the console: the state of the node, in a few numbers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Count, Exists, Q, Value
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from msgnode.models import Alarm, AlarmRule, Allocation, AuditEntry, SecondFactor, Subscription
from policies.models import DecisionEntry, Version

from . import key_figures
from .backups import archives
from .lists import BOUND
from .live.access import SEES

_NO_SESSION = "00000000-0000-0000-0000-000000000000"

RATES = (
    ("messages", "Messages in", "count", "spark_last_day"),
    ("copies", "Messages out", "count", "spark_last_day"),
    ("bytes_in", "Bytes in", "bytes", "spark_last_day"),
    ("bytes_out", "Bytes out", "bytes", "spark_last_day"),
    ("refused", "Refused", "count", "policies_decisionentry_changelist"),
    ("undeliverable", "Undeliverable", "count", "spark_last_day"),
    ("p50", "Latency in the node, p50", "µs", "spark_last_day"),
    ("p99", "Latency in the node, p99", "µs", "spark_last_day"),
)
"""Figures of a second: name, title, unit, and the page that explains them."""
CHARTS = (
    ("traffic", "Messages a second", "messages in, messages out"),
    ("failures", "Refused and undeliverable a second", "refused, undeliverable"),
    ("latency", "Latency inside the node, µs", "p50, p99"),
    ("load", "Processor of all workers, % of one core", "processor"),
)
TOPS = (
    ("talkers", "Busiest senders", "Runtime", "Messages/s", "Bytes/s", "Failed/s"),
    ("addresses", "Busiest addresses", "Address", "Messages/s", "Bytes/s", "Failed/s"),
    ("readers", "Slowest readers", "Runtime", "Bytes waiting", "", ""),
)

PERIOD = timedelta(hours=24)


def key_numbers(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What templates/admin/index.html shows (the setting DASHBOARD_CALLBACK)."""
    context["has_role"] = request.user.has_perm(SEES)
    if not context["has_role"]:
        return context
    now = timezone.now()
    live = key_figures.live_sessions()
    standing = list(Alarm.objects.filter(cleared_at=None)[:6])
    context["lengths"] = (("minutes", "15 minutes"), ("day", "24 hours"), ("week", "7 days"))
    context["charts"] = CHARTS
    context["rates"] = [
        (name, title, unit, reverse(f"admin:{page}")) for name, title, unit, page in RATES
    ]
    context["tops"] = TOPS
    context["session_url"] = reverse("admin:msgnode_session_change", args=[_NO_SESSION])
    context["sessions_url"] = sessions = _list("session")
    context["allocations_url"] = _list("allocation")
    held = _held()
    context["numbers"] = [
        _number("Open sessions", live["open"], f"{sessions}?state__exact=open"),
        _number("Detached sessions", live["detached"], f"{sessions}?state__exact=detached"),
        _number("Allocated addresses", held["addresses"], _list("allocation")),
        _number("Subscriptions", held["subscriptions"], _list("subscription")),
    ]
    if request.user.has_perm("msgnode.view_auditentry"):
        context["numbers"].append(
            _number("Changes in 24 hours", _changes(now), f"{_list('auditentry')}?hours=24")
        )
    context["alarms"] = standing[:5]
    context["more_alarms"] = len(standing) > 5
    context["alarms_url"] = f"{_list('alarm')}?standing=yes"
    context["components"] = key_figures.components(now)
    context["components_url"] = _list("componentstatus")
    context["policy"] = policy_summary()
    context["admission"] = key_figures.admission_summary()
    context["counted_at"] = now
    if request.user.has_perm("auth.change_user"):
        steps = first_steps()
        done = sum(step["is_done"] for step in steps)
        context["first_steps"] = steps if done < len(steps) else []
        context["steps_done"] = done
    return context


def first_steps() -> list[dict[str, Any]]:
    """What a new node needs before others use it, each checked here; one query."""
    told = AlarmRule.objects.exclude(mail_to="", webhook="")
    roles = User.objects.filter(
        is_active=True, is_superuser=False, groups__permissions__isnull=False
    )
    rows = User.objects.annotate(
        account=Exists(roles),
        factor=Exists(SecondFactor.objects.all()),
        alarm=Exists(told),
        policy=Exists(Version.objects.all()),
        report=Exists(apps.get_model("spark.Report").objects.all()),
    )
    found: Any = rows.values("account", "factor", "alarm", "policy", "report").first() or {}
    sends_mail = not settings.EMAIL_BACKEND.endswith("console.EmailBackend")
    has_domain = settings.DOMAIN != "localhost"
    steps = (
        ("A domain of its own", has_domain, f"It is {settings.DOMAIN}; the setting DOMAIN.", ""),
        ("TLS", settings.PUBLIC_URL.startswith("https://"),
         "Browsers and runtimes reach it at https://; a proxy and the setting PUBLIC_URL.", ""),
        ("An account with a role for daily work", found.get("account", False),
         "Beside the superuser, who may do everything.", reverse("admin:auth_user_add")),
        ("A second factor of an operator", found.get("factor", False),
         "An app or a passkey, beside the password.", reverse("own-log-in")),
        ("A first policy", found.get("policy", False),
         "Published; in shadow mode it only counts.", reverse("admin:policies_rule_add")),
        ("A first report", found.get("report", False),
         "Rolled up from the traffic record.", reverse("admin:spark_last_day")),
        ("A backup", bool(archives()), "Made in DATA_DIR; copy it elsewhere.", reverse("backups")),
        ("Mail that leaves the node", sends_mail, "The setting EMAIL_URL.", ""),
        ("An alarm that tells somebody", found.get("alarm", False),
         "A rule with a mail address or a webhook.", reverse("admin:msgnode_alarmrule_add")),
    )  # fmt: skip
    return [
        {"title": title, "is_done": bool(is_done), "text": text, "url": url}
        for title, is_done, text, url in steps
    ]


def _held() -> dict[str, int]:
    """How many addresses and subscriptions there are, in one query."""
    addresses, subscriptions = (
        rows.order_by().annotate(of=Value(name)).values("of").annotate(number=Count("pk"))
        for name, rows in (
            ("addresses", Allocation.objects.all()),
            ("subscriptions", Subscription.objects.all()),
        )
    )
    found = addresses.union(subscriptions, all=True).values_list("of", "number")
    return {"addresses": 0, "subscriptions": 0, **dict(found)}


def _changes(now: datetime) -> int:
    """What operators have changed since yesterday; counted no further than a list is."""
    return AuditEntry.objects.filter(at__gte=now - timedelta(hours=24))[:BOUND].count()


def _list(model: str) -> str:
    return reverse(f"admin:msgnode_{model}_changelist")


def _number(title: str, value: int, url: str) -> dict[str, Any]:
    return {"title": title, "value": value, "url": url}


def policy_summary() -> dict[str, Any]:
    """Two cheap queries; `open_defaults` names the defaults that let undecided messages pass."""
    number = Version.objects.order_by("-number").values_list("number", flat=True).first()
    counts = DecisionEntry.objects.filter(at__gte=timezone.now() - PERIOD).aggregate(
        refused=Count("pk", filter=Q(passes=False)),
        unclear=Count("pk", filter=Q(effect="indeterminate")),
        shadow=Count("pk", filter=~Q(shadow="")),
    )
    policy: dict[str, Any] = settings.POLICY
    defaults = {
        "no policy applies": policy["DELIVER_NOT_APPLICABLE"],
        "a policy cannot be evaluated": policy["DELIVER_INDETERMINATE"],
    }
    return {
        **counts,
        "version": number,
        "defaults": [
            {"when": when, "then": "delivered" if passes else "refused", "open": passes}
            for when, passes in defaults.items()
        ],
        "log_url": reverse("admin:policies_decisionentry_changelist"),
        "shadow_url": reverse("admin:policies_shadow"),
        "versions_url": reverse("admin:policies_version_changelist"),
    }
