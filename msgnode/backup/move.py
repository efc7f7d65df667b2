"""Moves the node's SQLite database to PostgreSQL: table by table, then compared row by row.

The source is locked for writing meanwhile. The target is empty at first; a table of ours in it
records which tables are done, with their number of rows and the digest of the source, so that a
killed move continues after the last complete table. If the source has changed since, it starts
again. The table is dropped when every row has been compared: without it the target is the node's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any

import psycopg
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.color import no_style
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Field, JSONField, Model
from psycopg.types.json import Jsonb

from msgnode.launch.error_messages import without_password
from msgnode.settings.environment import database_of
from msgnode.storage import migrating

from . import in_use

TARGET = "move_target"
PROGRESS = "msgnode_move"
_PORTION = 1000
_LOCK = 0x6D736E6F  # of one mover at a time, as an advisory lock of the target
_LINE = re.compile(r"COPY \w+, line (\d+)")

Say = Callable[[str], Any]


class CannotMove(Exception):
    """The move cannot begin, or not continue; the text says why."""


def move(url: str, say: Say) -> dict[str, int]:
    """Move the node's rows to another database.

    Args:
        url: the URL of an empty PostgreSQL database, or of one to which this move was begun.
        say: called with each table that is done.

    Returns:
        The rows of each table, all of them compared.

    Raises:
        CannotMove: the text says why.
        InUse: a node runs on the source.
    """
    if not re.match(r"(postgres|postgresql|postgis|pgsql)://", url):
        raise CannotMove(
            f"{without_password(url)!r} is no URL of a PostgreSQL database, such as "
            "postgres://user:password@host/name."
        )
    if connection.vendor != "sqlite":
        raise CannotMove("DATABASE_URL names no SQLite database; only from one can be moved.")
    with in_use.held(settings.DATA_DIR):
        in_use.refuse_workers()
        plan = MigrationExecutor(connection)
        if plan.migration_plan(plan.loader.graph.leaf_nodes()):
            raise CannotMove("The database is of an earlier version: `manage.py migrate` first.")
        connect(url)
        try:
            with _locked_target():
                _prepare()
                with transaction.atomic():  # begins with IMMEDIATE: nobody else writes
                    return _carry_over(say)
        except psycopg.Error as fault:
            raise CannotMove(f"The target refuses: {_first_line(fault)}") from None
        finally:
            connections[TARGET].close()


def connect(url: str) -> None:
    """Have the database of a URL as TARGET.

    Raises:
        CannotMove: it is none of PostgreSQL, or out of reach.
    """
    try:
        named = database_of(url, "The URL")
    except ImproperlyConfigured as fault:
        raise CannotMove(str(fault)) from None
    if "postgresql" not in str(named.get("ENGINE", "")):
        raise CannotMove("The target is no PostgreSQL database: postgres://user:password@host/name")
    named["OPTIONS"] = {"connect_timeout": 5, **named.get("OPTIONS", {})}
    connections.settings[TARGET] = connections.configure_settings(
        {"default": settings.DATABASES["default"], TARGET: named}
    )[TARGET]
    try:
        connections[TARGET].ensure_connection()
    except Exception as fault:
        raise CannotMove(f"The target is out of reach: {_first_line(fault)}") from None


@contextmanager
def _locked_target() -> Iterator[None]:
    with connections[TARGET].cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            raise CannotMove("Somebody else moves to this database just now.")
    yield  # given back with the connection


def _prepare() -> None:
    """The tables of this version, and our own."""
    target = connections[TARGET]
    there = target.introspection.table_names()
    if there and PROGRESS not in there:
        raise CannotMove(f"The target has tables already, such as {min(there)}; name an empty one.")
    if not there:
        try:
            migrating.look_at_encoding(TARGET, str)
        except migrating.UnfitDatabase as fault:
            raise CannotMove(str(fault)) from None
    with target.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {PROGRESS} "
            "(name text PRIMARY KEY, rows bigint NOT NULL, digest text NOT NULL)"
        )
    plan = MigrationExecutor(target)
    is_begun = not plan.migration_plan(plan.loader.graph.leaf_nodes()) and _progress()
    if is_begun:  # `migrate` would fill tables again: content types, permissions, roles
        with target.cursor() as cursor:
            _empty(cursor, but=is_begun)
    else:
        call_command("migrate", database=TARGET, interactive=False, verbosity=0)
        with target.cursor() as cursor:
            _empty(cursor)


def _empty(cursor: Any, but: Collection[str] = ()) -> None:
    """Delete rows written by migrations, because the source has them with its own ids."""
    tables = [model._meta.db_table for model in models()]
    names = [*(table for table in tables if table not in but), *([] if but else [PROGRESS])]
    if names:
        cursor.execute(f"TRUNCATE {', '.join(map(_quoted, names))}")


def models() -> list[type[Model]]:
    """All tables of the node, each behind those it points to."""
    return [model for group in groups() for model in group]


def groups() -> list[list[type[Model]]]:
    """The tables, each behind those it points to; together where they point to each other."""
    every = [
        model
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy
    ]
    first = {model: model for model in every}  # of each one's group
    while True:
        order: TopologicalSorter[type[Model]] = TopologicalSorter()
        for model in every:
            order.add(
                first[model], *({first[each] for each in _pointed_to(model)} - {first[model]})
            )
        try:
            firsts = list(order.static_order())
        except CycleError as found:
            cycle = set(found.args[1])
            first = {
                model: found.args[1][0] if each in cycle else each for model, each in first.items()
            }
        else:
            return [[model for model in every if first[model] is each] for each in firsts]


def _pointed_to(model: type[Model]) -> Iterator[type[Model]]:
    for field in model._meta.concrete_fields:
        if field.remote_field is not None and (
            pointed := field.remote_field.model._meta.concrete_model
        ):
            yield pointed


def _carry_over(say: Say) -> dict[str, int]:
    done = _progress()
    for model in models():
        table = model._meta.db_table
        if table in done and done[table] != _digest(model):
            say(f"{table} has changed since the move was begun: it begins again")
            with connections[TARGET].cursor() as cursor:
                _empty(cursor)
            done = {}
            break
    for group in groups():
        tables = [model._meta.db_table for model in group]
        if all(table in done for table in tables):
            for table in tables:
                say(f"{table}: {done[table][0]:,} rows, there already")
        else:
            with transaction.atomic(using=TARGET):  # what points to each other comes together
                copied = [_copy(model) for model in group]
            for table, number in zip(tables, copied, strict=True):
                say(f"{table}: {number:,} rows")
    moved = {model._meta.db_table: _compare(model) for model in models()}
    with transaction.atomic(using=TARGET), connections[TARGET].cursor() as cursor:
        for statement in connections[TARGET].ops.sequence_reset_sql(no_style(), models()):
            cursor.execute(statement)
        cursor.execute(f"DROP TABLE {PROGRESS}")
    return moved


def _progress() -> dict[str, tuple[int, str]]:
    with connections[TARGET].cursor() as cursor:
        cursor.execute(f"SELECT name, rows, digest FROM {PROGRESS}")  # noqa: S608
        return {name: (rows, digest) for name, rows, digest in cursor.fetchall()}


def _rows(model: type[Model]) -> Iterator[tuple[Any, ...]]:
    """The rows of the source as Python's values, in the order of their keys."""
    fields = [field.attname for field in model._meta.concrete_fields]
    rows = model._base_manager.order_by("pk").values_list(*fields)
    return rows.iterator(chunk_size=_PORTION)


def _digest(model: type[Model]) -> tuple[int, str]:
    number, digest = 0, hashlib.sha256()
    for row in _rows(model):
        number += 1
        digest.update(repr(row).encode())
    return number, digest.hexdigest()


def _copy(model: type[Model]) -> int:
    """Copy a table, and note it, in the caller's transaction; how many rows it has."""
    target = connections[TARGET]
    fields = list(model._meta.concrete_fields)
    columns = ", ".join(_quoted(str(field.column)) for field in fields)
    table = _quoted(model._meta.db_table)
    statement = f"COPY {table} ({columns}) FROM STDIN"
    number, digest = 0, hashlib.sha256()
    rows = _rows(model)
    with target.cursor() as cursor:
        while portion := list(islice(rows, _PORTION)):
            _copy_portion(cursor, statement, model, fields, portion)
            number += len(portion)
            for row in portion:
                digest.update(repr(row).encode())
        cursor.execute(
            f"INSERT INTO {PROGRESS} VALUES (%s, %s, %s)",  # noqa: S608  (our own name)
            [model._meta.db_table, number, digest.hexdigest()],
        )
    return number


def _copy_portion(
    cursor: Any,
    statement: str,
    model: type[Model],
    fields: list[Field[Any, Any]],
    portion: list[tuple[Any, ...]],
) -> None:
    written = 0
    try:
        with cursor.copy(statement) as copy:
            for row in portion:
                written += 1
                pairs = zip(fields, row, strict=True)
                copy.write_row([_prepared(field, value) for field, value in pairs])
    except psycopg.Error as fault:
        line = _LINE.search(fault.diag.context or "")
        row = portion[(int(line[1]) if line else written) - 1]
        keys = [field.attname for field in fields]
        key = row[keys.index(model._meta.pk.attname)]
        raise CannotMove(
            f"{model._meta.db_table}, row {key}: PostgreSQL does not take it "
            f"({_first_line(fault)}). Correct or delete it, and begin again."
        ) from None


def _prepared(field: Field[Any, Any], value: Any) -> Any:
    if value is None and isinstance(field, JSONField) and not field.null:
        return Jsonb(None)
    return field.get_db_prep_save(value, connections[TARGET])


def _compare(model: type[Model]) -> int:
    """Compare a table row by row; how many there are.

    Raises:
        CannotMove: a row is not in the target, or not as it was, or one too many is there.
    """
    table = model._meta.db_table
    fields = [field.attname for field in model._meta.concrete_fields]
    key = fields.index(model._meta.pk.attname)
    moved = model._base_manager.using(TARGET)
    number = 0
    rows = _rows(model)
    while portion := list(islice(rows, _PORTION)):
        number += len(portion)
        found = {
            row[key]: row
            for row in moved.filter(pk__in=[row[key] for row in portion]).values_list(*fields)
        }
        for row in portion:
            if not _alike(row, found.get(row[key])):
                raise CannotMove(f"{table}, row {row[key]}: it is another in the target.")
    if (there := moved.count()) != number:
        raise CannotMove(f"{table} has {there:,} rows in the target, not {number:,}.")
    return number


def _alike(one: tuple[Any, ...], other: tuple[Any, ...] | None) -> bool:
    return other is not None and list(map(_plain, one)) == list(map(_plain, other))


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip() or repr(fault)).splitlines()[0]


def _quoted(name: str) -> str:
    return connections[TARGET].ops.quote_name(name)
