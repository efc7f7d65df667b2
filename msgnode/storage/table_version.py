"""Whether the database's tables are of this version: seen by the names of migrations.

What brings tables up to date refuses those of a later version: it would give groups, permissions
and rows the meaning they had before. A process that serves does not start on tables of an earlier
one. It starts on those of a later one, and says so: in a rolling upgrade the tables come first, and
workers of the version before may start again on them (docs/operations.md, Upgrade).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.db import connections

log = logging.getLogger(__name__)

Migration = tuple[str, str]
"""App and name."""


class EarlierTables(Exception):
    """The tables lack migrations of this version; the text says what to do."""


def refuse_later(using: str, **_signal: Any) -> None:
    """Handle `pre_migrate`: bring nothing up to date that a later version has made.

    Args:
        using: alias of the database that is migrated.

    Raises:
        CommandError: the database has migrations that this version does not know.
    """
    if unknown := _applied(using) - known():
        raise CommandError(
            f"the database is of a later version of the node: it has {named(unknown)}, which this "
            "version does not know. Start the later version, or restore a backup that this one "
            "has made."
        )


def refuse_earlier() -> None:
    """Look at the tables before a process serves on them.

    Raises:
        EarlierTables: they lack a migration.
        DatabaseError: the database does not answer.
    """
    try:
        applied = _applied("default")
    finally:
        connections["default"].close()
    if missing := known() - applied:
        raise EarlierTables(
            f"the database is of an earlier version of the node: it lacks {named(missing)}. "
            "`manage.py migrate` brings it up to date; `manage.py run` does so by itself."
        )
    if unknown := applied - known():
        log.warning(
            "The database is of a later version of the node: it has %s. This version serves on "
            "it only while workers are replaced one by one.",
            named(unknown),
        )


def known() -> set[Migration]:
    """The migrations of this version, of all its apps, by their files."""
    return {
        (config.label, file.stem)
        for config in apps.get_app_configs()
        for file in Path(config.path, "migrations").glob("[!_]*.py")
    }


def _applied(using: str) -> set[Migration]:
    """Those the database has had, of the apps that this version has; none if it has no tables."""
    labels = {config.label for config in apps.get_app_configs()}
    connection = connections[using]
    with connection.cursor() as cursor:
        if "django_migrations" not in connection.introspection.table_names(cursor):
            return set()
        cursor.execute("SELECT app, name FROM django_migrations")
        return {(app, name) for app, name in cursor.fetchall() if app in labels}


def named(migrations: Collection[Migration]) -> str:
    """The first of them, and how many more there are."""
    app, name = min(migrations)
    more = f" and {len(migrations) - 1} more" if len(migrations) > 1 else ""
    return f"the migration {app}.{name}{more}"
