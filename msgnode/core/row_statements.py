"""The SQL of statements that insert, change or delete many rows at once. Pure.

PostgreSQL is given the rows of a statement as one JSON value, because the driver's own work at each
value costs more than all the rest; SQLite, which is in the same process, takes them one after
another. Names and types come from the models of whoever asks, never from a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

Prepare = Callable[[Any], Any]

_encode = msgspec.json.Encoder().encode


class Column(NamedTuple):
    """Its name, its type in PostgreSQL, and what makes of a value what SQLite stores."""

    name: str
    type: str
    prepare: Prepare | None


class Statement(NamedTuple):
    """Its text, and the columns whose values it takes.

    SQLite executes it for each of its `parameters`; PostgreSQL has one set of them.
    """

    sql: str
    columns: tuple[Column, ...]
    is_sqlite: bool

    def run(self, cursor: Any, rows: Iterable[Sequence[Any]]) -> None:
        """Execute it for rows.

        Args:
            cursor: of the database.
            rows: the values of its columns each.
        """
        parameters = self.parameters(rows)
        if self.is_sqlite:
            cursor.executemany(self.sql, parameters)
        else:
            cursor.execute(self.sql, parameters[0])

    def parameters(self, rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
        """The parameters for rows: the values of its columns each."""
        if self.is_sqlite:
            return [self._prepared(row) for row in rows]
        names = [column.name for column in self.columns]
        named = [dict(zip(names, row, strict=True)) for row in rows]
        return [[_encode(named).decode()]]

    def _prepared(self, row: Sequence[Any]) -> list[Any]:
        return [
            value if column.prepare is None else column.prepare(value)
            for value, column in zip(row, self.columns, strict=True)
        ]


def insertion(
    table: str, columns: tuple[Column, ...], is_sqlite: bool, leaves: bool = False
) -> Statement:
    """Insert rows; with `leaves` one that is there already is left as it is."""
    names = ", ".join(f'"{column.name}"' for column in columns)
    if is_sqlite:
        source = f"VALUES ({', '.join(['%s'] * len(columns))})"
    else:
        source = f"SELECT {names} FROM {_rows_of(columns)}"  # noqa: S608  (our own names)
    rest = " ON CONFLICT DO NOTHING" if leaves else ""
    sql = f'INSERT INTO "{table}" ({names}) {source}{rest}'  # noqa: S608  (our own names)
    return Statement(sql, columns, is_sqlite)


def alteration(table: str, columns: tuple[Column, ...], is_sqlite: bool) -> Statement:
    """Change columns of rows; the last column says which row."""
    *changed, key = [f'"{column.name}"' for column in columns]
    if is_sqlite:
        values = ", ".join(f"{name} = %s" for name in changed)
        sql = f'UPDATE "{table}" SET {values} WHERE {key} = %s'  # noqa: S608  (our own names)
    else:
        values = ", ".join(f"{name} = r.{name}" for name in changed)
        rows = _rows_of(columns)
        sql = f'UPDATE "{table}" SET {values} FROM {rows} WHERE "{table}".{key} = r.{key}'  # noqa: S608  (our own names)
    return Statement(sql, columns, is_sqlite)


def deletion(table: str, columns: tuple[Column, ...], is_sqlite: bool) -> Statement:
    """Delete the rows that have these values."""
    names = [f'"{column.name}"' for column in columns]
    if is_sqlite:
        which = " AND ".join(f"{name} = %s" for name in names)
        sql = f'DELETE FROM "{table}" WHERE {which}'  # noqa: S608  (our own names)
    else:
        which = " AND ".join(f'"{table}".{name} = r.{name}' for name in names)
        sql = f'DELETE FROM "{table}" USING {_rows_of(columns)} WHERE {which}'  # noqa: S608  (our own names)
    return Statement(sql, columns, is_sqlite)


def _rows_of(columns: tuple[Column, ...]) -> str:
    """PostgreSQL's rows of a statement, from one parameter."""
    typed = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    return f"jsonb_to_recordset(%s) AS r({typed})"
