"""Gives the pages of policies the record to replay drafts against."""

from __future__ import annotations

from django.conf import settings

from policies.apps import PoliciesConfig


def offer_record() -> None:
    """Where messages are recorded, a draft can be tried on them."""
    if settings.RECORD["ON"]:
        PoliciesConfig.installed().recorded = _kinds


def _kinds(*arguments: object) -> object:
    # Arrow is loaded by who asks, not by every program
    from msgnode.traffic import kinds
    from msgnode.traffic.recorder import raw_url

    return kinds.kinds(raw_url(settings.RECORD["URL"]), *arguments)  # type: ignore[arg-type]
