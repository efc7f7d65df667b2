"""The SQL statements of the registry's changes: many rows each, without model instances.

Groups of changes are small and many, and for those Django's models cost several times what the
database does. A statement is built once per table, columns and kind of database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
from django.db import connection
from django.db.models import DateTimeField, Field, JSONField, Model

from msgnode.core import row_statements
from msgnode.core.row_statements import Column, Prepare, Statement, as_utc

from . import rows
from .entries import Entry, Kind

Row = Sequence[Any]

_encode = msgspec.json.Encoder().encode


def read(kind: Kind, urls: Iterable[str], *, is_locked: bool = False) -> list[Entry]:
    """The entries at these URLs, in the order of URLs.

    Args:
        kind: the kind of the entries.
        urls: the URLs of the entries.
        is_locked: whether they are locked when read; SQLite locks everything anyway.
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
        model: the model of the table.
        columns: the columns given; the database numbers the rows.
        values: the values of the columns, row by row.
        leaves: whether an existing row is left as it is, instead of an IntegrityError.
    """
    _run(_insertion(model, columns, leaves, connection.vendor), values)


def update(model: type[Model], columns: tuple[str, ...], values: Iterable[Row]) -> None:
    """Update columns of rows.

    Args:
        model: the model of the table.
        columns: the columns to set, and last the one that identifies the row.
        values: the values of the columns, row by row.
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
    """The function that converts a column's values for SQLite."""
    if isinstance(field, DateTimeField):
        return as_utc
    return json.dumps if isinstance(field, JSONField) else None
