"""An SQLite database as part of an archive: copied while it is in use, and checked.

The copy is of one moment: in WAL mode a reader does not block writers. It is a file of its own,
without a write-ahead log.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from django.apps import apps

from msgnode.identity.sealed_secrets import COLUMNS

from .manifest import ArchiveFault, Database, Migration

PART = "node.sqlite3"

Encrypted = dict[tuple[str, str], list[str]]
"""Encrypted values by table and column."""


def dump(database: Path, folder: Path) -> tuple[Database, list[str]]:
    """Copy a database into a directory.

    Returns:
        What the copy has, and the names of its parts.

    Raises:
        sqlite3.Error: it cannot be read or is damaged, or the disk does not take the copy.
    """
    copy = folder / PART
    copy.touch(mode=0o600)
    with (
        closing(
            sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        ) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")
        faults = [row[0] for row in target.execute("PRAGMA integrity_check(1)")]
        if faults != ["ok"]:
            raise sqlite3.DatabaseError(f"{database} is damaged: {faults[0]}")
    return _look(copy), [PART]


def check(copy: Path, said: Database) -> None:
    """Compare a copy with what the manifest says of it, and have SQLite look through it.

    Raises:
        ArchiveFault: it is damaged, or another database.
    """
    try:
        with closing(sqlite3.connect(copy)) as connection:
            faults = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        found = _look(copy)
    except sqlite3.DatabaseError as fault:
        raise ArchiveFault(f"{PART} is damaged: {fault}") from None
    if faults != ["ok"]:
        raise ArchiveFault(f"{PART} is damaged: {faults[0]}")
    for table, number in said.rows.items():
        if found.rows.get(table) != number:
            raise ArchiveFault(
                f"{PART} has {found.rows.get(table, 0)} rows in {table}, not {number}."
            )
    if found.migrations != said.migrations:
        raise ArchiveFault(f"{PART} has other migrations than the manifest says.")


def encrypted_values(copy: Path) -> Encrypted:
    """The encrypted values in it."""
    with closing(sqlite3.connect(copy)) as connection:
        return {
            (table, column): [
                row[0]
                for row in connection.execute(f"SELECT {column} FROM {table} WHERE {column} <> ''")  # noqa: S608
            ]
            for table, column in encrypted_columns()
            if column in _columns(connection, table)  # an earlier version may lack it
        }


def encrypted_columns() -> set[tuple[str, str]]:
    """The tables and columns with encrypted values."""
    return {(apps.get_model(model)._meta.db_table, field) for _, model, field in COLUMNS}


def forget_workers(copy: Path) -> None:
    """Take out the workers of the node that was backed up: none of them runs on this copy."""
    with closing(sqlite3.connect(copy)) as connection:
        if "msgnode_worker" in _tables(connection):
            connection.execute("DELETE FROM msgnode_worker")
            connection.commit()


def _look(copy: Path) -> Database:
    with closing(sqlite3.connect(copy)) as connection:
        rows = {
            table: connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]  # noqa: S608
            for table in _tables(connection)
        }
        migrations: list[Migration] = connection.execute(
            "SELECT app, name FROM django_migrations ORDER BY app, name"
        ).fetchall()
    return Database("sqlite", [(app, name) for app, name in migrations], rows)


def _tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        "ORDER BY name"
    )
    return [row[0] for row in found]


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
