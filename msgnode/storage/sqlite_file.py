"""Configures a new SQLite file so that the space of deleted rows can be returned to the disk.

This is set once, before the first table is created, and not for each connection: it writes to the
file, so every connection would have to wait for the current writer. docs/operations.md says how to
convert an older file.
"""

from __future__ import annotations

from typing import Any

from django.db import connections


def prepare(using: str, **signal: Any) -> None:
    """Handle `pre_migrate`: have an empty SQLite database use incremental vacuum.

    Args:
        using: alias of the database that is migrated.
        signal: the signal's other arguments; not used.
    """
    connection = connections[using]
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sqlite_master")
        if cursor.fetchone()[0]:
            return
        cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
        cursor.execute("VACUUM")
