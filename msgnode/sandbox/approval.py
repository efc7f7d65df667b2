"""Approval of a script by its digest, for peers' stubs and for connectors. Blocks."""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils import timezone

from msgnode.models.scripts import RunsScript


def chosen(row: RunsScript, offered: QuerySet, digest: str) -> tuple[str, str]:
    """Which script an operator means.

    Args:
        row: what the script is for; its `found_digest` is the newest one's.
        offered: all of its scripts.
        digest: of one of them, or how it begins; "" for the newest.

    Returns:
        The whole digest, "" if it is not clear; and the obstacle then.
    """
    if row.found_digest.startswith(digest.lower()):
        return row.found_digest, ""
    known = list(offered.filter(digest__startswith=digest.lower()).values_list("digest", flat=True))
    if len(known) == 1:
        return known[0], ""
    return "", "several scripts" if known else "no script"


def approve(row: RunsScript, digest: str, by: str) -> None:
    """Have a script run from now on."""
    row.decision = row.Decision.APPROVED
    row.approved_digest, row.approved_by = digest, by[:150]
    row.approved_at = timezone.now()
    decided = ["decision", "approved_digest", "approved_by", "approved_at"]
    row.save(update_fields=decided)  # the rest may have changed since it was read
