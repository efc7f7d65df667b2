"""Checks of what is set for the policies (E013, E014)."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.checks import CheckMessage, Error


def faults() -> Iterator[CheckMessage]:
    """The time zone that rules are written in, and how much is kept of decisions."""
    policy = settings.POLICY
    try:
        ZoneInfo(policy["TIME_ZONE"])
    except (OSError, ValueError, KeyError):  # no such zone, or a name that is none
        yield Error(
            f"POLICY_TIME_ZONE {policy['TIME_ZONE']!r} is not a time zone.",
            hint="A name such as UTC or Europe/Berlin.",
            id="msgnode.E013",
        )
    for name in ("LOG_SAMPLE", "LOG_ROOM", "LOG_DAYS"):
        if not policy[name] >= 0:
            yield Error(f"POLICY_{name} is {policy[name]}.", hint="0 or more.", id="msgnode.E014")
