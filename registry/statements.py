"""The statements of the registry's changes: many rows with one, no model made of any.

Groups of changes are small and many, and for those Django's models cost several times what the
database does. PostgreSQL is given the rows of a statement as one JSON value; SQLite, which is in
the same process, takes them one after another. A statement is made once for a table, its columns
and a kind of database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import msgspec
from django.db import connection
from django.db.models import DateTimeField, Field, JSONField, Model

from . import rows
from .entries import Entry, Kind

Row = Sequence[Any]
_Prepare = Callable[[Any], Any]

_encode = msgspec.json.Encoder().encode


class _Statement(NamedTuple):
    """Its text, the columns whose values it takes, and what SQLite's values are prepared by."""

    sql: str
    columns: tuple[str, ...]
    prepared: tuple[_Prepare | None, ...]


def read(kind: Kind, urls: Iterable[str], *, is_locked: bool = False) -> list[Entry]:
    """The entries of these URLs, in the order of URLs.

    Args:
        kind: of the entries.
        urls: of the entries.
        is_locked: whether they are locked as they are read; SQLite locks them all.
    """
    sql = _reading(kind, is_locked, connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(sql, [_encode(list(urls)).decode()])
        return [rows.from_json(text) for (text,) in cursor.fetchall()]


def insert(
    model: type[Model], columns: tuple[str, ...], values: Iterable[Row], *, leaves: bool = False
) -> None:
    """Insert rows.

    Args:
        model: of the table.
        columns: those that are given; the database numbers the rows.
        values: of the columns, row by row.
        leaves: whether a row that is there already is left as it is, and not an IntegrityError.
    """
    _run(_insertion(model, columns, leaves, connection.vendor), values)


def update(model: type[Model], columns: tuple[str, ...], values: Iterable[Row]) -> None:
    """Change columns of rows.

    Args:
        model: of the table.
        columns: those that change, and last the one that says which row.
        values: of the columns, row by row.
    """
    _run(_alteration(model, columns, connection.vendor), values)


def _run(statement: _Statement, values: Iterable[Row]) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.executemany(statement.sql, [_prepared(row, statement) for row in values])
        else:
            named = [dict(zip(statement.columns, row, strict=True)) for row in values]
            cursor.execute(statement.sql, [_encode(named).decode()])


def _prepared(row: Row, statement: _Statement) -> list[Any]:
    return [
        value if prepare is None else prepare(value)
        for value, prepare in zip(row, statement.prepared, strict=True)
    ]


@cache
def _reading(kind: Kind, is_locked: bool, vendor: str) -> str:
    table = _quoted(rows.MODELS[kind]._meta.db_table)
    if vendor == "sqlite":
        named, lock = "url IN (SELECT value FROM json_each(%s))", ""
    else:
        named = "url = ANY(ARRAY(SELECT jsonb_array_elements_text(%s)))"
        lock = " FOR UPDATE" if is_locked else ""
    text = rows.as_json(kind, vendor)
    return f"SELECT {text} FROM {table} WHERE {named} ORDER BY url{lock}"  # noqa: S608  (ours)


@cache
def _insertion(
    model: type[Model], columns: tuple[str, ...], leaves: bool, vendor: str
) -> _Statement:
    fields = _fields(model, columns)
    table, names = _quoted(model._meta.db_table), ", ".join(map(_quoted, columns))
    if vendor == "sqlite":
        source = f"VALUES ({', '.join(['%s'] * len(columns))})"
    else:
        source = f"SELECT {names} FROM {_rows_of(fields)}"  # noqa: S608  (our own names)
    rest = " ON CONFLICT DO NOTHING" if leaves else ""
    sql = f"INSERT INTO {table} ({names}) {source}{rest}"  # noqa: S608  (our own names)
    return _Statement(sql, columns, tuple(map(_preparation, fields)))


@cache
def _alteration(model: type[Model], columns: tuple[str, ...], vendor: str) -> _Statement:
    fields = _fields(model, columns)
    table, key = _quoted(model._meta.db_table), _quoted(columns[-1])
    names = [_quoted(column) for column in columns[:-1]]
    if vendor == "sqlite":
        changed = ", ".join(f"{name} = %s" for name in names)
        sql = f"UPDATE {table} SET {changed} WHERE {key} = %s"  # noqa: S608  (our own names)
    else:
        changed = ", ".join(f"{name} = r.{name}" for name in names)
        source = _rows_of(fields)
        sql = f"UPDATE {table} SET {changed} FROM {source} WHERE {table}.{key} = r.{key}"  # noqa: S608  (our own names)
    return _Statement(sql, columns, tuple(map(_preparation, fields)))


def _fields(model: type[Model], columns: tuple[str, ...]) -> list[Field[Any, Any]]:
    known = {field.column: field for field in model._meta.concrete_fields}
    return [known[column] for column in columns]


def _rows_of(fields: list[Field[Any, Any]]) -> str:
    """PostgreSQL's rows of a statement, from one parameter."""
    typed = ", ".join(f"{_quoted(str(f.column))} {f.db_type(connection)}" for f in fields)
    return f"jsonb_to_recordset(%s) AS r({typed})"


def _preparation(field: Field[Any, Any]) -> _Prepare | None:
    """What makes of a value what SQLite stores."""
    if isinstance(field, DateTimeField):
        return _moment
    return json.dumps if isinstance(field, JSONField) else None


def _moment(value: datetime | None) -> str | None:
    return None if value is None else str(value.astimezone(UTC).replace(tzinfo=None))


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
