"""Groups the changes of a transaction, so that those of many sessions share statements.

Between two calls the rows are written in the order of Stage. A change that would break the order of
its session begins a new stretch, so the order within a session is kept. Addresses of a session that
ends are deleted before those of others are inserted, which may be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, assert_never

from django.db import connection
from django.db.models import AutoField, Model

from msgnode.bus.writing import Call, Change, Create, Delete, Together, Update
from msgnode.core import row_statements
from msgnode.models import Session


def insert(model: type[Model], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows.

    Args:
        model: the model of the table.
        rows: values by column; a column that is not given has its default.
    """
    if rows:
        defaults = _defaults(model)
        values = (
            [row[name] if name in row else default() for name, default in defaults.items()]
            for row in rows
        )
        row_statements.insert(connection, model, tuple(defaults), values)


@cache
def _defaults(model: type[Model]) -> dict[str, Callable[[], Any]]:
    """The columns of a model, with the functions that make their defaults."""
    fields = (each for each in model._meta.concrete_fields if not isinstance(each, AutoField))
    return {str(each.column): each.get_default for each in fields}


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
                known = stretch.columns.setdefault(session_id, {})
                if known.get("state") != Session.State.CLOSED:
                    known.update(columns)
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
            row_statements.delete(
                connection, model, ("session_id",), [(each,) for each in sessions]
            )
        for model, named in self.named.items():
            row_statements.delete(connection, model, ("session_id", "address"), named)
        for model, rows in self.rows.items():
            insert(model, rows)
        for action, items in self.together.items():
            action(items)
        self._begin()


def _update(columns: dict[str, dict[str, Any]]) -> None:
    """Update with one statement all rows that change the same columns.

    A session that an operator has closed stays so, whatever its worker still stores of it.
    """
    alike: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for session_id, values in columns.items():
        names = tuple(sorted(values))
        alike.setdefault(names, []).append((*map(values.__getitem__, names), session_id))
    for names, rows in alike.items():
        closed = "state", Session.State.CLOSED.value
        row_statements.update(connection, Session, (*names, "id"), rows, leaves=closed)
