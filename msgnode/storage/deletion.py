"""Deleting rows to which another process may just be adding some that refer to them."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet


def delete_with_dependents(rows: QuerySet[Any]) -> int:
    """Delete rows with all that refers to them, while nobody can add to that.

    Django looks up what refers to a row before its transaction begins: what comes in between would
    be left without its row, so that the database refuses the whole. SQLite has one writer at a
    time; in PostgreSQL who adds waits for the lock, and is then refused with an IntegrityError.

    Args:
        rows: to delete; not too many for one transaction.

    Returns:
        How many of the rows themselves there were.
    """
    with transaction.atomic():
        held = list(rows.select_for_update().values_list("pk", flat=True))
        rows.model._default_manager.filter(pk__in=held).delete()
    return len(held)
