"""Puts the changes of one transaction together, so that those of many sessions cost one statement.

Between two calls the rows are written in the order of Stage. A change of a session that has been
further already in this stretch begins a new one, so what belongs to a session stays in its order;
the addresses of a session that ends are deleted before another session's are entered, which may be
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, assert_never
from uuid import UUID

from django.db import connection
from django.db.models import AutoField, Model

from msgnode.bus.writing import Call, Change, Create, Delete, Together, Update
from msgnode.models import Session

from .column_values import Prepare, preparation

Statement = tuple[str, list[tuple[str, Prepare | None]]]
"""Its text, and the attributes whose values it takes, each with what prepares them."""


class Stage(IntEnum):
    """What is written first."""

    SESSIONS = 0
    COLUMNS = 1
    DELETIONS = 2
    ROWS = 3


def apply(changes: Iterable[Change]) -> None:
    """Write them, inside the transaction of the caller."""
    stretch = _Stretch()
    for change in changes:
        match change:
            case Create(rows):
                for row in rows:
                    stretch.create(row)
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
    """What has come since the last call."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.sessions: list[Session] = []
        self.columns: dict[UUID, dict[str, Any]] = {}
        self.deletions: dict[type[Model], dict[UUID, None]] = {}
        self.named: dict[type[Model], list[tuple[UUID, str]]] = {}
        self.rows: dict[type[Model], list[Model]] = {}
        self.together: dict[Callable[[list[Any]], None], list[Any]] = {}
        self._reached: dict[UUID, Stage] = {}

    def at(self, stage: Stage, session_id: UUID) -> None:
        """A change of a session at a stage: it waits for a stretch of its own if that is over."""
        if self._reached.get(session_id, Stage.SESSIONS) > stage:
            self.write()
        self._reached[session_id] = stage

    def create(self, row: Any) -> None:
        if isinstance(row, Session):
            self.at(Stage.SESSIONS, row.id)
            self.sessions.append(row)
            return
        session_id = getattr(row, "session_id", None)
        if session_id is not None:
            self.at(Stage.ROWS, session_id)
        self.rows.setdefault(type(row), []).append(row)

    def write(self) -> None:
        """Write what is here, and begin anew."""
        _insert(self.sessions)
        _update(self.columns)
        for model, sessions in self.deletions.items():
            _delete(model, sessions)
        for model, named in self.named.items():
            _delete_named(model, named)
        for rows in self.rows.values():
            _insert(rows)
        for action, items in self.together.items():
            action(items)
        self._begin()


def _insert(rows: Sequence[Model]) -> None:
    """Insert rows of one model.

    The ORM's own way costs more than all the rest of a session's beginning, because the groups are
    many and small.
    """
    if not rows:
        return
    statement, columns = _insertion(type(rows[0]), connection.vendor)
    _execute(
        statement,
        (
            [
                getattr(row, name) if prepared is None else prepared(getattr(row, name))
                for name, prepared in columns
            ]
            for row in rows
        ),
    )


@cache
def _insertion(model: type[Model], vendor: str) -> Statement:
    """The statement that inserts a row, and its columns with what prepares their values."""
    fields = [each for each in model._meta.concrete_fields if not isinstance(each, AutoField)]
    names = ", ".join(_quoted(str(each.column)) for each in fields)
    marks = ", ".join(["%s"] * len(fields))
    columns = [(each.attname, preparation(each, vendor)) for each in fields]
    table = _quoted(model._meta.db_table)
    return f"INSERT INTO {table} ({names}) VALUES ({marks})", columns  # noqa: S608  (our own names)


def _update(columns: dict[UUID, dict[str, Any]]) -> None:
    """One statement for all rows that change the same columns."""
    alike: dict[tuple[str, ...], list[UUID]] = {}
    for session_id, values in columns.items():
        alike.setdefault(tuple(sorted(values)), []).append(session_id)
    for names, ids in alike.items():
        statement, prepared = _alteration(names, connection.vendor)
        _execute(
            statement,
            (
                [
                    *(
                        columns[id_][name] if prepare is None else prepare(columns[id_][name])
                        for name, prepare in prepared
                    ),
                    _key(id_),
                ]
                for id_ in ids
            ),
        )


@cache
def _alteration(
    names: tuple[str, ...], vendor: str
) -> tuple[str, list[tuple[str, Prepare | None]]]:
    """The statement that changes these columns of a session, and what prepares their values."""
    known = {field.name: field for field in Session._meta.concrete_fields}
    fields = [known[name] for name in names]
    assignments = ", ".join(f"{_quoted(field.attname)} = %s" for field in fields)
    table = _quoted(Session._meta.db_table)
    statement = f"UPDATE {table} SET {assignments} WHERE id = %s"  # noqa: S608  (our own names)
    return statement, [(field.name, preparation(field, vendor)) for field in fields]


def _delete(model: type[Model], sessions: Iterable[UUID]) -> None:
    table = _quoted(model._meta.db_table)
    _execute(
        f"DELETE FROM {table} WHERE session_id = %s",  # noqa: S608  (our own names)
        ([_key(session_id)] for session_id in sessions),
    )


def _delete_named(model: type[Model], named: Iterable[tuple[UUID, str]]) -> None:
    table = _quoted(model._meta.db_table)
    _execute(
        f"DELETE FROM {table} WHERE session_id = %s AND address = %s",  # noqa: S608  (our own names)
        ([_key(session_id), address] for session_id, address in named),
    )


def _execute(statement: str, values: Iterable[list[Any]]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(statement, list(values))


def _key(session_id: UUID) -> Any:
    return Session._meta.pk.get_db_prep_value(session_id, connection)


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)
