"""Statements for many rows of models, without the ORM's work per row.

That work would dominate, because the groups that share a transaction are many and small. A
statement is built once per model, columns and kind of database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from django.db import connection
from django.db.models import AutoField, Field, Model

from msgnode.core import row_statements
from msgnode.core.row_statements import Column, Statement

from .column_values import preparation


def insert(model: type[Model], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows.

    Args:
        model: the model of the table.
        rows: values by column; a column that is not given has its default.
    """
    if rows:
        statement, defaults = _insertion(model, connection.vendor)
        _run(
            statement,
            (
                [row[name] if name in row else default() for name, default in defaults]
                for row in rows
            ),
        )


def update(model: type[Model], columns: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> None:
    """Update columns of rows.

    Args:
        model: the model of the table.
        columns: the columns to set, and last the one that identifies the row.
        rows: the values of these columns.
    """
    _run(_alteration(model, columns, connection.vendor), rows)


def delete(model: type[Model], columns: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> None:
    """Delete the rows that have these values.

    Args:
        model: the model of the table.
        columns: the columns that identify the rows.
        rows: the values of these columns.
    """
    _run(_deletion(model, columns, connection.vendor), rows)


def _run(statement: Statement, rows: Iterable[Sequence[Any]]) -> None:
    with connection.cursor() as cursor:
        statement.run(cursor, rows)


@cache
def _insertion(
    model: type[Model], vendor: str
) -> tuple[Statement, list[tuple[str, Callable[[], Any]]]]:
    """The statement, and its columns with the functions that make their defaults."""
    fields = [each for each in model._meta.concrete_fields if not isinstance(each, AutoField)]
    columns = tuple(map(_column, fields))
    statement = row_statements.insertion(model._meta.db_table, columns, vendor == "sqlite")
    return statement, [(str(each.column), each.get_default) for each in fields]


@cache
def _alteration(model: type[Model], names: tuple[str, ...], vendor: str) -> Statement:
    columns = _columns(model, names)
    return row_statements.alteration(model._meta.db_table, columns, vendor == "sqlite")


@cache
def _deletion(model: type[Model], names: tuple[str, ...], vendor: str) -> Statement:
    columns = _columns(model, names)
    return row_statements.deletion(model._meta.db_table, columns, vendor == "sqlite")


def _columns(model: type[Model], names: tuple[str, ...]) -> tuple[Column, ...]:
    known = {field.column: field for field in model._meta.concrete_fields}
    return tuple(_column(known[name]) for name in names)


def _column(field: Field[Any, Any]) -> Column:
    return Column(str(field.column), str(field.db_type(connection)), preparation(field))
