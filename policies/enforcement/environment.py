"""The environment of every decision, from the node's settings: clock, node, defaults.

The worker's enforcer and the console's playground and tests share it, so that they agree.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings

from .defaults import Defaults


def zone() -> ZoneInfo:
    """The time zone of `time`, `date` and `weekday`."""
    return ZoneInfo(settings.POLICY["TIME_ZONE"])


def node_facts() -> dict[str, Any]:
    """The attributes about the node itself."""
    return {
        "domain": settings.DOMAIN,
        "domainRegistry": f"domain://registry.{settings.DOMAIN}",
        "port": settings.PORT,
        "useSSL": settings.POLICY["USES_TLS"],
    }


def defaults() -> Defaults:
    """The verdicts for messages that no policy decides."""
    policy = settings.POLICY
    return Defaults(policy["DELIVER_NOT_APPLICABLE"], policy["DELIVER_INDETERMINATE"])


def local(moment: datetime) -> str:
    """A moment as policies see it, in the form of a case's `now`."""
    return moment.astimezone(zone()).replace(tzinfo=None).isoformat(timespec="seconds")
