"""The tables of a PostgreSQL database as parts of an archive, as of one moment, and back.

They are read with COPY in one transaction that sees one state of the database, and written in one
transaction, so that either everything is there afterwards or nothing has changed. The node's own
migrations create the tables, as many as the archive has; no program of PostgreSQL is needed.

Tables that somebody else has in the same database are neither copied nor dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from msgnode.storage.table_version import known

from .manifest import ArchiveFault, Database, Migration
from .sqlite import Encrypted, encrypted_columns

FOLDER = "tables"
_BLOCK = 256 * 1024
_MIGRATIONS = "django_migrations"
_WORKERS = "msgnode_worker"


def dump(folder: Path) -> tuple[Database, list[str]]:
    """Copy all tables into files of a directory.

    Returns:
        What they have, and the names of the parts.

    Raises:
        DatabaseError: the database refuses, or has gone away.
        OSError: the disk does not take the files.
    """
    (folder / FOLDER).mkdir(mode=0o700)
    rows: dict[str, int] = {}
    columns: dict[str, list[str]] = {}
    with _one_moment() as cursor:
        for table in _tables(cursor):
            columns[table] = _columns(cursor, table)
            with (
                connection.wrap_database_errors,  # which Django does not do for a COPY
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
        _take_time(cursor)
        yield cursor


def _take_time(cursor: Any) -> None:
    """Lift, in this transaction, the limits that a server or a role may have for statements."""
    cursor.execute(
        "SELECT set_config('statement_timeout', '0', true), "
        "set_config('idle_in_transaction_session_timeout', '0', true)"
    )


def has_tables() -> bool:
    """Whether the database has any of a node."""
    with connection.cursor() as cursor:
        return bool(_tables(cursor))


def _tables(cursor: Any) -> list[str]:
    """The node's tables, and those that a later version of it has made."""
    there = connection.introspection.table_names(cursor)
    apps_there: set[str] = set()
    if _MIGRATIONS in there:
        cursor.execute(f"SELECT DISTINCT app FROM {_MIGRATIONS}")  # noqa: S608
        apps_there = {row[0] for row in cursor.fetchall()}
    return sorted(_of_apps(there, apps_there))


def _of_apps(tables: Iterable[str], further: Iterable[str]) -> set[str]:
    """Those of these tables that are of the node's apps, or of further ones."""
    named = {_MIGRATIONS, *connection.introspection.django_table_names()}
    begin = tuple(f"{app}_" for app in {app for app, _ in known()}.union(further))
    return {table for table in tables if table in named or table.startswith(begin)}


def check(folder: Path, said: Database) -> Encrypted:
    """Compare the parts with what the manifest says of the tables.

    Args:
        folder: the directory of the parts.
        said: what the manifest says of the database.

    Returns:
        The encrypted values in them.

    Raises:
        ArchiveFault: a table is missing, or has another number of rows.
    """
    known_columns = encrypted_columns()
    encrypted: Encrypted = {}
    for table, number in said.rows.items():
        part = folder / FOLDER / table
        if "/" in table or not part.is_file():
            raise ArchiveFault(f"The table {table} is missing.")
        found = 0
        at = {
            n: encrypted.setdefault((table, column), [])
            for n, column in enumerate(said.columns[table])
            if (table, column) in known_columns
        }
        with part.open("rb") as file:
            for row in file:
                found += 1
                _collect(row, at)
        if found != number:
            raise ArchiveFault(f"{table} has {found} rows, not {number}.")
    return encrypted


def load(folder: Path, said: Database, *, replace: bool) -> None:
    """Create the tables with the rows of an archive, in one transaction.

    Args:
        folder: the directory of the parts.
        said: what the manifest says of the database.
        replace: whether existing tables are dropped first.

    Raises:
        ArchiveFault: a table has other columns or another number of rows than it should.
        DatabaseError: the database refuses, or has gone away.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '10s'")
        _take_time(cursor)
        # Else a migration that writes rows keeps the next from changing their table.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        if replace:
            for table in _tables(cursor):
                cursor.execute(f"DROP TABLE {_quoted(table)} CASCADE")
        _migrate({(app, name) for app, name in said.migrations})
        there = set(_tables(cursor)) - {_MIGRATIONS}
        archived = _of_apps(said.rows, ()) - {_MIGRATIONS}  # earlier ones have tables of others
        if there != archived:
            odd = min(there ^ archived)
            raise ArchiveFault(f"The table {odd} is in the archive or in its version, not in both.")
        cursor.execute(f"TRUNCATE {', '.join(map(_quoted, sorted(there)))}")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        for table in sorted(there):
            _fill(cursor, table, said, folder / FOLDER / table)
        if _WORKERS in there:
            cursor.execute(f"DELETE FROM {_WORKERS}")  # noqa: S608
        every = apps.get_models(include_auto_created=True)
        made = [
            model for model in every if model._meta.db_table in there
        ]  # an earlier one has less
        for statement in connection.ops.sequence_reset_sql(no_style(), made):
            cursor.execute(statement)


def _migrate(wanted: set[Migration]) -> None:
    """Apply the migrations of an archive; squashed ones only if it has all that they replace.

    Raises:
        ArchiveFault: it lacks some that others need.
    """
    executor = MigrationExecutor(connection)
    squashed = executor.loader.replacements
    wanted = wanted - squashed.keys()  # whether one of them is applied follows from the others
    asked = wanted | squashed.keys()
    if not all(wanted.issuperset(each.replaces) for each in squashed.values()):
        executor.loader = MigrationLoader(connection, replace_migrations=False)
        asked = wanted
    nodes = executor.loader.graph.node_map
    executor.migrate(
        sorted(  # the last of each app; asked for an earlier one it would migrate back
            key
            for key in asked & nodes.keys()
            if not any(
                child.key[0] == key[0] and child.key in asked for child in nodes[key].children
            )
        )
    )
    if MigrationRecorder(connection).applied_migrations().keys() - squashed.keys() != wanted:
        raise ArchiveFault("The archive has some migrations without those they need.")


def _collect(row: bytes, at: dict[int, list[str]]) -> None:
    """Add columns of a row in the text of COPY to lists; encrypted ones have nothing escaped."""
    columns = row.decode(errors="replace").rstrip("\n").split("\t") if at else []
    for each, values in at.items():
        if each < len(columns) and columns[each] not in ("", "\\N"):
            values.append(columns[each])


def _fill(cursor: Any, table: str, said: Database, path: Path) -> None:
    columns = said.columns[table]
    if sorted(columns) != sorted(_columns(cursor, table)):
        raise ArchiveFault(f"The table {table} has other columns than its version makes.")
    with (
        connection.wrap_database_errors,
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
