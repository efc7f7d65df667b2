"""Statements for many rows, without the ORM's work at each: it costs more than all the rest.

The groups that share a transaction are many and small. PostgreSQL is given the rows of a statement
as one JSON value; SQLite, which is in the same process, takes them one after another. A statement
is made once for a model, its columns and a kind of database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from django.db import connection
from django.db.models import AutoField, Field, Model

from .column_values import Prepare, preparation

_encode = msgspec.json.Encoder().encode


class _Column(NamedTuple):
    """Its name, what makes its default, and what SQLite's values are prepared by."""

    name: str
    default: Callable[[], Any]
    prepare: Prepare | None


class _Statement(NamedTuple):
    sql: str
    columns: tuple[_Column, ...]


def insert(model: type[Model], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows.

    Args:
        model: of the table.
        rows: values by columns; a column that is not named has its default.
    """
    if rows:
        statement = _insertion(model, connection.vendor)
        _run(
            statement,
            (
                [row[name] if name in row else default() for name, default, _ in statement.columns]
                for row in rows
            ),
        )


def update(model: type[Model], columns: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> None:
    """Change columns of rows.

    Args:
        model: of the table.
        columns: those that change, and last the one that says which row.
        rows: the values of the columns.
    """
    _run(_alteration(model, columns, connection.vendor), rows)


def delete(model: type[Model], columns: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> None:
    """Delete the rows that have these values.

    Args:
        model: of the table.
        columns: those that say which rows.
        rows: the values of the columns.
    """
    _run(_deletion(model, columns, connection.vendor), rows)


def _run(statement: _Statement, rows: Iterable[Sequence[Any]]) -> None:
    columns = statement.columns
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            values = [
                [
                    value if column.prepare is None else column.prepare(value)
                    for value, column in zip(row, columns, strict=True)
                ]
                for row in rows
            ]
            cursor.executemany(statement.sql, values)
        else:
            names = [column.name for column in columns]
            named = [dict(zip(names, row, strict=True)) for row in rows]
            cursor.execute(statement.sql, [_encode(named).decode()])


@cache
def _insertion(model: type[Model], vendor: str) -> _Statement:
    fields = [each for each in model._meta.concrete_fields if not isinstance(each, AutoField)]
    names = ", ".join(_quoted(str(each.column)) for each in fields)
    if vendor == "sqlite":
        source = f"VALUES ({', '.join(['%s'] * len(fields))})"
    else:
        source = f"SELECT {names} FROM {_rows_of(fields)}"  # noqa: S608  (our own names)
    table = _quoted(model._meta.db_table)
    sql = f"INSERT INTO {table} ({names}) {source}"  # noqa: S608  (our own names)
    return _Statement(sql, _columns(fields, vendor))


@cache
def _alteration(model: type[Model], columns: tuple[str, ...], vendor: str) -> _Statement:
    fields = _fields(model, columns)
    names = [_quoted(str(each.column)) for each in fields]
    table, key = _quoted(model._meta.db_table), names[-1]
    if vendor == "sqlite":
        changed = ", ".join(f"{name} = %s" for name in names[:-1])
        sql = f"UPDATE {table} SET {changed} WHERE {key} = %s"  # noqa: S608  (our own names)
    else:
        changed = ", ".join(f"{name} = r.{name}" for name in names[:-1])
        rows = _rows_of(fields)
        sql = f"UPDATE {table} SET {changed} FROM {rows} WHERE {table}.{key} = r.{key}"  # noqa: S608  (our own names)
    return _Statement(sql, _columns(fields, vendor))


@cache
def _deletion(model: type[Model], columns: tuple[str, ...], vendor: str) -> _Statement:
    fields = _fields(model, columns)
    names = [_quoted(str(each.column)) for each in fields]
    table = _quoted(model._meta.db_table)
    if vendor == "sqlite":
        which = " AND ".join(f"{name} = %s" for name in names)
        sql = f"DELETE FROM {table} WHERE {which}"  # noqa: S608  (our own names)
    else:
        which = " AND ".join(f"{table}.{name} = r.{name}" for name in names)
        sql = f"DELETE FROM {table} USING {_rows_of(fields)} WHERE {which}"  # noqa: S608  (our own names)
    return _Statement(sql, _columns(fields, vendor))


def _fields(model: type[Model], columns: tuple[str, ...]) -> list[Field[Any, Any]]:
    known = {field.column: field for field in model._meta.concrete_fields}
    return [known[column] for column in columns]


def _columns(fields: list[Field[Any, Any]], vendor: str) -> tuple[_Column, ...]:
    return tuple(
        _Column(
            str(each.column),
            each.get_default,
            preparation(each) if vendor == "sqlite" else None,
        )
        for each in fields
    )


def _rows_of(fields: list[Field[Any, Any]]) -> str:
    """PostgreSQL's rows of a statement, from one parameter."""
    typed = ", ".join(f"{_quoted(str(each.column))} {each.db_type(connection)}" for each in fields)
    return f"jsonb_to_recordset(%s) AS r({typed})"


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
