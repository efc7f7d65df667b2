"""Inserts, changes or deletes many rows by one statement, without model instances. Pure.

PostgreSQL gets all rows of a statement as one JSON parameter, because the driver's work per value
costs more than everything else. SQLite, which runs in this process, gets up to LARGEST rows per
statement, because after each execution the thread must wait for the GIL. Names and types come from
the caller's models, never from a client; the connection is the caller's, too.

The statements avoid the ORM's work per row: it would dominate, because groups of changes are small
and many. A statement is built once per model, columns and kind of database. What the ORM checks for
each value (is it an expression, has it a time zone) is checked here once per field; fields of a
type not known here convert their values themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

Prepare = Callable[[Any], Any]

_encode = msgspec.json.Encoder().encode


def as_utc(value: datetime | None) -> str | None:
    """A time as Django writes it to SQLite (USE_TZ, and no time zone of the database)."""
    return None if value is None else str(value.astimezone(UTC).replace(tzinfo=None))


class Column(NamedTuple):
    """A column: its name, its type in PostgreSQL, and the conversion of values for SQLite."""

    name: str
    type: str
    prepare: Prepare | None


LARGEST = 64
"""Most rows in one SQL text of SQLite. Other numbers of rows are split into a half of that, a
quarter and so on, so that there are few different texts and each is compiled once."""
_MOST_VALUES = 999
"""Most parameters of one SQL text, as in SQLite before 3.32."""


class Text(NamedTuple):
    """The parts of an SQL text for SQLite: `one` per row, joined by `joint`.

    Without `joint`, each row is executed by itself.
    """

    before: str
    one: str
    joint: str
    after: str = ""


class Statement(NamedTuple):
    """An SQL text (for SQLite in parts), and the columns whose values it takes."""

    text: str | Text
    columns: tuple[Column, ...]

    def run(self, cursor: Any, rows: Iterable[Sequence[Any]]) -> None:
        """Execute the statement for some rows.

        Args:
            cursor: a database cursor.
            rows: for each row the values of the columns.
        """
        for sql, parameters in self.executions(rows):
            if len(parameters) == 1:
                cursor.execute(sql, parameters[0])
            else:
                cursor.executemany(sql, parameters)

    def executions(self, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, list[list[Any]]]]:
        """The executions for some rows: SQL texts, each with its list of parameter lists.

        Args:
            rows: for each row the values of the columns.
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
    """The SQL text for a number of rows."""
    return f"{text.before}{text.joint.join([text.one] * number)}{text.after}"


def insertion(
    table: str, columns: tuple[Column, ...], is_sqlite: bool, leaves: bool = False
) -> Statement:
    """A statement that inserts rows; with `leaves` existing rows are left unchanged."""
    names = ", ".join(f'"{column.name}"' for column in columns)
    into = f'INSERT INTO "{table}" ({names})'
    rest = " ON CONFLICT DO NOTHING" if leaves else ""
    if is_sqlite:
        values = f"({', '.join(['%s'] * len(columns))})"
        return Statement(Text(f"{into} VALUES ", values, ", ", rest), columns)
    return Statement(f"{into} SELECT {names} FROM {_rows_of(columns)}{rest}", columns)  # noqa: S608  (our own names)


def alteration(
    table: str, columns: tuple[Column, ...], is_sqlite: bool, leaves: tuple[str, str] | None = None
) -> Statement:
    """A statement that updates columns of rows; the last column identifies the row.

    Rows whose column has a value are left as they are, if `leaves` names the two.
    """
    left = f""" AND "{table}"."{leaves[0]}" <> '{leaves[1]}'""" if leaves else ""
    *changed, key = [f'"{column.name}"' for column in columns]
    if is_sqlite:
        values = ", ".join(f"{name} = %s" for name in changed)
        one = f'UPDATE "{table}" SET {values} WHERE {key} = %s{left}'  # noqa: S608  (our own names)
        return Statement(Text("", one, ""), columns)
    values = ", ".join(f"{name} = r.{name}" for name in changed)
    rows = _rows_of(columns)
    sql = f'UPDATE "{table}" SET {values} FROM {rows} WHERE "{table}".{key} = r.{key}{left}'  # noqa: S608  (our own names)
    return Statement(sql, columns)


def deletion(table: str, columns: tuple[Column, ...], is_sqlite: bool) -> Statement:
    """A statement that deletes the rows with these values."""
    names = [f'"{column.name}"' for column in columns]
    delete = f'DELETE FROM "{table}"'  # noqa: S608  (our own names)
    if is_sqlite:
        which = " AND ".join(f"{name} = %s" for name in names)
        return Statement(Text(f"{delete} WHERE ", f"({which})", " OR "), columns)
    which = " AND ".join(f'"{table}".{name} = r.{name}' for name in names)
    return Statement(f"{delete} USING {_rows_of(columns)} WHERE {which}", columns)


def _rows_of(columns: tuple[Column, ...]) -> str:
    """The expression with which PostgreSQL unpacks the rows from one parameter."""
    typed = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    return f"jsonb_to_recordset(%s) AS r({typed})"


# --- of a model -----------------------------------------------------------------------------------

_made: dict[tuple[Any, ...], Statement] = {}


def insert(
    connection: Any,
    model: Any,
    columns: tuple[str, ...],
    rows: Iterable[Sequence[Any]],
    *,
    leaves: bool = False,
) -> None:
    """Insert rows.

    Args:
        connection: to the database.
        model: the model of the table.
        columns: the columns that are given; the database numbers the rows.
        rows: the values of these columns.
        leaves: whether an existing row is left as it is, instead of an IntegrityError.
    """
    _run(connection, insertion, model, columns, rows, leaves)


def update(
    connection: Any,
    model: Any,
    columns: tuple[str, ...],
    rows: Iterable[Sequence[Any]],
    *,
    leaves: tuple[str, str] | None = None,
) -> None:
    """Update columns of rows.

    Args:
        connection: to the database.
        model: the model of the table.
        columns: the columns that are given; the last one identifies the row.
        rows: the values of these columns.
        leaves: a column and a value: rows that have it are left as they are.
    """
    _run(connection, alteration, model, columns, rows, leaves)


def delete(
    connection: Any, model: Any, columns: tuple[str, ...], rows: Iterable[Sequence[Any]]
) -> None:
    """Delete the rows that have these values in the columns."""
    _run(connection, deletion, model, columns, rows)


def _run(
    connection: Any,
    make: Callable[..., Statement],
    model: Any,
    names: tuple[str, ...],
    rows: Iterable[Sequence[Any]],
    *more: Any,
) -> None:
    key = (make, model, names, connection.vendor, *more)
    if (statement := _made.get(key)) is None:
        known = {field.column: field for field in model._meta.concrete_fields}
        columns = tuple(_column(known[name], connection) for name in names)
        is_sqlite = connection.vendor == "sqlite"
        statement = _made[key] = make(model._meta.db_table, columns, is_sqlite, *more)
    with connection.cursor() as cursor:
        statement.run(cursor, rows)


def _column(field: Any, connection: Any) -> Column:
    type_ = str(field.db_type(connection))
    return Column(str(field.column), type_, preparation(field, connection))


def preparation(field: Any, connection: Any) -> Prepare | None:
    """The function that converts values of a field for SQLite; None if they need no conversion."""
    kind = field.get_internal_type()
    if kind == "ForeignKey":
        kind = field.target_field.get_internal_type()
    if kind in _PREPARED and getattr(field, "encoder", None) is None:
        return _PREPARED[kind]
    return lambda value: field.get_db_prep_save(value, connection)


def _hex(value: UUID | str | None) -> str | None:
    return value.hex if isinstance(value, UUID) else value


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


_PREPARED: dict[str, Prepare | None] = {
    **dict.fromkeys(("BigAutoField", "BooleanField", "CharField", "FloatField"), None),
    **dict.fromkeys(("PositiveIntegerField", "TextField"), None),
    "UUIDField": _hex,
    "DateTimeField": as_utc,
    "JSONField": _json,
}
