"""Deletes rows while other processes may be adding rows that refer to them."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet


def delete_with_dependents(rows: QuerySet[Any]) -> int:
    """Delete rows and everything that refers to them, while nobody can add to that.

    Django looks up what refers to a row before its transaction begins; a row added in between would
    violate its foreign key and fail the whole. SQLite has one writer at a time; in PostgreSQL
    whoever adds such a row waits for the lock and then gets an IntegrityError.

    Args:
        rows: the rows to delete; not too many for one transaction.

    Returns:
        How many of these rows there were.
    """
    with transaction.atomic():
        held = list(rows.select_for_update().values_list("pk", flat=True))
        rows.model._default_manager.filter(pk__in=held).delete()
    return len(held)
