"""Gives the pages of policies the record to replay drafts against."""

from __future__ import annotations

from functools import partial

from django.conf import settings

from msgnode.traffic.retention import raw_url
from policies.apps import PoliciesConfig


def offer_record() -> None:
    """Where messages are recorded, a draft can be tried on them."""
    if settings.RECORD["ON"]:
        PoliciesConfig.installed().recorded = partial(_kinds, raw_url(settings.RECORD["URL"]))


def _kinds(*arguments: object) -> object:
    from msgnode.traffic import kinds  # Arrow is loaded by who asks, not by every command

    return kinds.kinds(*arguments)  # type: ignore[arg-type]
