"""The statements of the registry's changes: many rows with one, no model made of any.

Groups of changes are small and many, and for those Django's models cost several times what the
database does. A statement is made once for a table, its columns and a kind of database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
from django.db import connection
from django.db.models import DateTimeField, Field, JSONField, Model

from msgnode.core import row_statements
from msgnode.core.row_statements import Column, Prepare, Statement

from . import rows
from .entries import Entry, Kind

Row = Sequence[Any]

_encode = msgspec.json.Encoder().encode


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


def _run(statement: Statement, values: Iterable[Row]) -> None:
    with connection.cursor() as cursor:
        statement.run(cursor, values)


@cache
def _reading(kind: Kind, is_locked: bool, vendor: str) -> str:
    table = rows.MODELS[kind]._meta.db_table
    if vendor == "sqlite":
        named, lock = "url IN (SELECT value FROM json_each(%s))", ""
    else:
        named = "url = ANY(ARRAY(SELECT jsonb_array_elements_text(%s)))"
        lock = " FOR UPDATE" if is_locked else ""
    text = rows.as_json(kind, vendor)
    return f'SELECT {text} FROM "{table}" WHERE {named} ORDER BY url{lock}'  # noqa: S608  (our own names)


@cache
def _insertion(
    model: type[Model], columns: tuple[str, ...], leaves: bool, vendor: str
) -> Statement:
    of_table = (model._meta.db_table, _columns(model, columns), vendor == "sqlite")
    return row_statements.insertion(*of_table, leaves)


@cache
def _alteration(model: type[Model], columns: tuple[str, ...], vendor: str) -> Statement:
    of_table = (model._meta.db_table, _columns(model, columns), vendor == "sqlite")
    return row_statements.alteration(*of_table)


def _columns(model: type[Model], names: tuple[str, ...]) -> tuple[Column, ...]:
    known = {field.column: field for field in model._meta.concrete_fields}
    fields = [known[name] for name in names]
    return tuple(
        Column(str(each.column), str(each.db_type(connection)), _preparation(each))
        for each in fields
    )


def _preparation(field: Field[Any, Any]) -> Prepare | None:
    """What makes of a value what SQLite stores."""
    if isinstance(field, DateTimeField):
        return _moment
    return json.dumps if isinstance(field, JSONField) else None


def _moment(value: datetime | None) -> str | None:
    return None if value is None else str(value.astimezone(UTC).replace(tzinfo=None))
