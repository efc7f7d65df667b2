"""Groups the changes of a transaction, so that those of many sessions share statements.

Between two calls the rows are written in the order of Stage. A change that would break the order of
its session begins a new stretch, so the order within a session is kept. Addresses of a session that
ends are deleted before those of others are inserted, which may be the same.

The statements avoid the ORM's work per row: it would dominate, because the groups that share a
transaction are many and small. A statement is built once per model, columns and kind of database.
What the ORM checks for each value (is it an expression, has it a time zone) is checked here once
per field; fields of a type not known here convert their values themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, assert_never
from uuid import UUID

from django.db import connection
from django.db.models import (
    AutoField,
    BooleanField,
    CharField,
    DateTimeField,
    Field,
    FloatField,
    ForeignKey,
    JSONField,
    Model,
    PositiveIntegerField,
    TextField,
    UUIDField,
)

from msgnode.bus.writing import Call, Change, Create, Delete, Together, Update
from msgnode.core import row_statements
from msgnode.core.row_statements import Column, Prepare, Statement, as_utc
from msgnode.models import Session


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


def preparation(field: Field[Any, Any]) -> Prepare | None:
    """The function that converts values of a field for SQLite; None if they need no conversion."""
    kind = type(field.target_field if isinstance(field, ForeignKey) else field)
    if kind in _PREPARED:
        return _PREPARED[kind]
    if isinstance(field, JSONField) and field.encoder is None:
        return _json
    return lambda value: field.get_db_prep_save(value, connection)


def _hex(value: UUID | str | None) -> str | None:
    return value.hex if isinstance(value, UUID) else value


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


_PREPARED: dict[type[Any], Prepare | None] = {
    BooleanField: None,
    CharField: None,
    FloatField: None,
    PositiveIntegerField: None,
    TextField: None,
    UUIDField: _hex,
    DateTimeField: as_utc,
}


Row = Mapping[str, Any]


class Stage(IntEnum):
    """The order in which rows are written."""

    SESSIONS = 0
    COLUMNS = 1
    DELETIONS = 2
    ROWS = 3


def apply(changes: Iterable[Change]) -> None:
    """Write the changes, inside the caller's transaction."""
    stretch = _Stretch()
    for change in changes:
        match change:
            case Create(model, rows):
                for row in rows:
                    stretch.create(model, row)
            case Update(session_id, columns):
                stretch.at(Stage.COLUMNS, session_id)
                stretch.columns.setdefault(session_id, {}).update(columns)
            case Delete(model, session_id, None):
                stretch.at(Stage.DELETIONS, session_id)
                stretch.deletions.setdefault(model, {})[session_id] = None
            case Delete(model, session_id, addresses):
                stretch.at(Stage.DELETIONS, session_id)
                named = stretch.named.setdefault(model, [])
                named += [(session_id, address) for address in addresses or ()]
            case Together(action, item):
                stretch.together.setdefault(action, []).append(item)
            case Call(action):
                stretch.write()
                action()
            case _:
                assert_never(change)
    stretch.write()


class _Stretch:
    """The changes since the last call."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.sessions: list[Row] = []
        self.columns: dict[str, dict[str, Any]] = {}
        self.deletions: dict[type[Model], dict[str, None]] = {}
        self.named: dict[type[Model], list[tuple[str, str]]] = {}
        self.rows: dict[type[Model], list[Row]] = {}
        self.together: dict[Callable[[list[Any]], None], list[Any]] = {}
        self._reached: dict[str, Stage] = {}

    def at(self, stage: Stage, session_id: str) -> None:
        """Note a change of a session; begin a new stretch if its stage has passed."""
        if self._reached.get(session_id, Stage.SESSIONS) > stage:
            self.write()
        self._reached[session_id] = stage

    def create(self, model: type[Model], row: Row) -> None:
        if model is Session:
            self.at(Stage.SESSIONS, row["id"])
            self.sessions.append(row)
            return
        session_id = row.get("session_id")
        if session_id is not None:
            self.at(Stage.ROWS, session_id)
        self.rows.setdefault(model, []).append(row)

    def write(self) -> None:
        """Write this stretch, and begin a new one."""
        insert(Session, self.sessions)
        _update(self.columns)
        for model, sessions in self.deletions.items():
            delete(model, ("session_id",), [(each,) for each in sessions])
        for model, named in self.named.items():
            delete(model, ("session_id", "address"), named)
        for model, rows in self.rows.items():
            insert(model, rows)
        for action, items in self.together.items():
            action(items)
        self._begin()


def _update(columns: dict[str, dict[str, Any]]) -> None:
    """Update with one statement all rows that change the same columns."""
    alike: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for session_id, values in columns.items():
        names = tuple(sorted(values))
        alike.setdefault(names, []).append((*map(values.__getitem__, names), session_id))
    for names, rows in alike.items():
        update(Session, (*names, "id"), rows)
