"""The tables of a PostgreSQL database as parts of an archive, as of one moment, and back.

They are read with COPY in one transaction that sees one state of the database, and written in one
transaction, so that either everything is there afterwards or nothing has changed. The node's own
migrations create the tables, as many as the archive has; no program of PostgreSQL is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from .manifest import ArchiveFault, Database, Migration
from .sqlite import SEALED

FOLDER = "tables"
_BLOCK = 256 * 1024
_MIGRATIONS = "django_migrations"


def dump(folder: Path) -> tuple[Database, list[str]]:
    """Copy all tables into files of a directory.

    Returns:
        What they have, and the names of the parts.
    """
    (folder / FOLDER).mkdir(mode=0o700)
    rows: dict[str, int] = {}
    columns: dict[str, list[str]] = {}
    with _one_moment() as cursor:
        for table in sorted(connection.introspection.table_names(cursor)):
            columns[table] = _columns(cursor, table)
            with (
                (folder / FOLDER / table).open("wb") as file,
                cursor.copy(f"COPY {_listed(table, columns[table])} TO STDOUT") as copy,
            ):
                for block in copy:
                    file.write(block)
            rows[table] = cursor.rowcount
        cursor.execute(f"SELECT app, name FROM {_MIGRATIONS} ORDER BY app, name")  # noqa: S608
        migrations = [(app, name) for app, name in cursor.fetchall()]
    return Database("postgresql", migrations, rows, columns), [f"{FOLDER}/{name}" for name in rows]


@contextmanager
def _one_moment() -> Iterator[Any]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield cursor


def has_tables() -> bool:
    """Whether the database has any."""
    return bool(connection.introspection.table_names())


def load(folder: Path, said: Database, *, replace: bool) -> list[str]:
    """Create the tables with the rows of an archive, in one transaction.

    Args:
        folder: the directory of the parts.
        said: what the manifest says of the database.
        replace: whether existing tables are dropped first.

    Returns: The encrypted values, so that the caller, whose transaction this is part of, can check
        whether they can be decrypted.

    Raises:
        ArchiveFault: a table has other columns or another number of rows than it should.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '10s'")
        # Else a migration that writes rows keeps the next from changing their table.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        if replace:
            for table in connection.introspection.table_names(cursor):
                cursor.execute(f"DROP TABLE {_quoted(table)} CASCADE")
        executor = MigrationExecutor(connection)
        executor.migrate(_last(executor, {(app, name) for app, name in said.migrations}))
        applied = sorted(MigrationRecorder(connection).applied_migrations())
        if applied != sorted(tuple(each) for each in said.migrations):
            raise ArchiveFault("The archive has some migrations without those they need.")
        there = set(connection.introspection.table_names(cursor)) - {_MIGRATIONS}
        if there != set(said.rows) - {_MIGRATIONS}:
            odd = min(there ^ (set(said.rows) - {_MIGRATIONS}))
            raise ArchiveFault(f"The table {odd} is in the archive or in its version, not in both.")
        cursor.execute(f"TRUNCATE {', '.join(map(_quoted, sorted(there)))}")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        for table in sorted(there):
            _fill(cursor, table, said, folder / FOLDER / table)
        cursor.execute("DELETE FROM msgnode_worker")
        for statement in connection.ops.sequence_reset_sql(
            no_style(), list(apps.get_models(include_auto_created=True))
        ):
            cursor.execute(statement)
        sealed: list[str] = []
        for table, column in SEALED:
            if table in there:
                cursor.execute(f"SELECT {column} FROM {table} WHERE {column} <> ''")  # noqa: S608
                sealed += [row[0] for row in cursor.fetchall()]
        return sealed


def _last(executor: MigrationExecutor, wanted: set[Migration]) -> list[Migration]:
    """The last wanted migration of each app; for earlier ones it migrates back."""
    nodes = executor.loader.graph.node_map
    return sorted(
        each
        for each in wanted
        if not any(
            child.key[0] == each[0] and child.key in wanted for child in nodes[each].children
        )
    )


def _fill(cursor: Any, table: str, said: Database, path: Path) -> None:
    columns = said.columns[table]
    if sorted(columns) != sorted(_columns(cursor, table)):
        raise ArchiveFault(f"The table {table} has other columns than its version makes.")
    with (
        path.open("rb") as file,
        cursor.copy(f"COPY {_listed(table, columns)} FROM STDIN") as copy,
    ):
        while block := file.read(_BLOCK):
            copy.write(block)
    if cursor.rowcount != said.rows[table]:
        raise ArchiveFault(f"{table} has {cursor.rowcount} rows, not {said.rows[table]}.")


def _columns(cursor: Any, table: str) -> list[str]:
    return [each.name for each in connection.introspection.get_table_description(cursor, table)]


def _listed(table: str, columns: list[str]) -> str:
    return f"{_quoted(table)} ({', '.join(map(_quoted, columns))})"


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
