"""What the first page says of policies: what is in force, what became of messages, the defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q
from django.urls import reverse
from django.utils import timezone

from policies.models import DecisionEntry, Version

PERIOD = timedelta(hours=24)


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
