"""How a new SQLite file is made: so that it can give the space of deleted rows back.

It is set once, before the first table is made, and not for each connection: the setting writes to
the file, so a connection that made it would wait for whoever writes at that moment.
docs/operations.md says how to bring an older file there.
"""

from __future__ import annotations

from typing import Any

from django.db import connections


def prepare(using: str, **signal: Any) -> None:
    """Handle `pre_migrate`: have an empty SQLite database use incremental vacuum.

    Args:
        using: alias of the database that is migrated.
        signal: what else the signal carries; not used.
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
