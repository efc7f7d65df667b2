"""The SQL of statements that insert, change or delete many rows at once. Pure.

PostgreSQL is given the rows of a statement as one JSON value, because the driver's own work at each
value costs more than all the rest. SQLite, which is in the same process, is given up to LARGEST of
them with one text: at each execution the thread waits for the interpreter, which others have. Names
and types come from the models of whoever asks, never from a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec

Prepare = Callable[[Any], Any]

_encode = msgspec.json.Encoder().encode


class Column(NamedTuple):
    """Its name, its type in PostgreSQL, and what makes of a value what SQLite stores."""

    name: str
    type: str
    prepare: Prepare | None


LARGEST = 64
"""Rows in one text of SQLite; fewer are put together of texts for a half, a quarter ... of that, so
that there are few texts and each is compiled once."""
_MOST_VALUES = 999
"""In one text: what SQLite takes that is older than 3.32."""


class Text(NamedTuple):
    """What SQLite is told for some rows: `one` for each, joined by `joint`; one alone without."""

    before: str
    one: str
    joint: str
    after: str = ""


class Statement(NamedTuple):
    """Its text (for PostgreSQL; in parts for SQLite), and the columns whose values it takes."""

    text: str | Text
    columns: tuple[Column, ...]

    def run(self, cursor: Any, rows: Iterable[Sequence[Any]]) -> None:
        """Execute it for rows.

        Args:
            cursor: of the database.
            rows: the values of its columns each.
        """
        for sql, parameters in self.executions(rows):
            if len(parameters) == 1:
                cursor.execute(sql, parameters[0])
            else:
                cursor.executemany(sql, parameters)

    def executions(self, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, list[list[Any]]]]:
        """What is executed for rows: texts, and the parameters of each execution.

        Args:
            rows: the values of its columns each.
        """
        if isinstance(self.text, str):
            names = [column.name for column in self.columns]
            named = [dict(zip(names, row, strict=True)) for row in rows]
            yield self.text, [[_encode(named).decode()]]
            return
        left = [self._prepared(row) for row in rows]
        size = LARGEST if self.text.joint else 1
        while size > 1 and size * len(self.columns) > _MOST_VALUES:
            size //= 2
        while left:
            whole = len(left) - len(left) % size
            some, left = left[:whole], left[whole:]
            if some:
                sets = [
                    list(chain.from_iterable(some[begin : begin + size]))
                    for begin in range(0, whole, size)
                ]
                yield _of_rows(self.text, size), sets
            size //= 2

    def _prepared(self, row: Sequence[Any]) -> list[Any]:
        return [
            value if column.prepare is None else column.prepare(value)
            for value, column in zip(row, self.columns, strict=True)
        ]


@cache
def _of_rows(text: Text, number: int) -> str:
    """The text for a number of rows."""
    return f"{text.before}{text.joint.join([text.one] * number)}{text.after}"


def insertion(
    table: str, columns: tuple[Column, ...], is_sqlite: bool, leaves: bool = False
) -> Statement:
    """Insert rows; with `leaves` one that is there already is left as it is."""
    names = ", ".join(f'"{column.name}"' for column in columns)
    into = f'INSERT INTO "{table}" ({names})'
    rest = " ON CONFLICT DO NOTHING" if leaves else ""
    if is_sqlite:
        values = f"({', '.join(['%s'] * len(columns))})"
        return Statement(Text(f"{into} VALUES ", values, ", ", rest), columns)
    return Statement(f"{into} SELECT {names} FROM {_rows_of(columns)}{rest}", columns)  # noqa: S608  (our own names)


def alteration(table: str, columns: tuple[Column, ...], is_sqlite: bool) -> Statement:
    """Change columns of rows; the last column says which row."""
    *changed, key = [f'"{column.name}"' for column in columns]
    if is_sqlite:
        values = ", ".join(f"{name} = %s" for name in changed)
        one = f'UPDATE "{table}" SET {values} WHERE {key} = %s'  # noqa: S608  (our own names)
        return Statement(Text("", one, ""), columns)
    values = ", ".join(f"{name} = r.{name}" for name in changed)
    rows = _rows_of(columns)
    sql = f'UPDATE "{table}" SET {values} FROM {rows} WHERE "{table}".{key} = r.{key}'  # noqa: S608  (our own names)
    return Statement(sql, columns)


def deletion(table: str, columns: tuple[Column, ...], is_sqlite: bool) -> Statement:
    """Delete the rows that have these values."""
    names = [f'"{column.name}"' for column in columns]
    delete = f'DELETE FROM "{table}"'  # noqa: S608  (our own names)
    if is_sqlite:
        which = " AND ".join(f"{name} = %s" for name in names)
        return Statement(Text(f"{delete} WHERE ", f"({which})", " OR "), columns)
    which = " AND ".join(f'"{table}".{name} = r.{name}' for name in names)
    return Statement(f"{delete} USING {_rows_of(columns)} WHERE {which}", columns)


def _rows_of(columns: tuple[Column, ...]) -> str:
    """PostgreSQL's rows of a statement, from one parameter."""
    typed = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    return f"jsonb_to_recordset(%s) AS r({typed})"
