"""Many rows with one statement: the same rows on either database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest

from msgnode.core.row_statements import Column, Statement, alteration, deletion, insertion

URL = Column("url", "varchar(20)", None)
WORDS = Column("words", "jsonb", json.dumps)
END = Column("end", "integer", None)
TABLE = 'CREATE TEMPORARY TABLE "rows" ("url" varchar(20) UNIQUE, "words" {json}, "end" integer)'

Run = Callable[[Statement, Sequence[Sequence[Any]]], None]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[tuple[bool, Any]]:
    """Whether it is SQLite, and a cursor on an empty table."""
    if request.param == "sqlite":
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(TABLE.format(json="text"))
            yield True, connection.cursor()
        return
    with psycopg.connect(request.getfixturevalue("postgres_url")) as server:
        server.execute(TABLE.format(json="jsonb"))
        yield False, server.cursor()
        server.rollback()


@pytest.fixture
def run(database: tuple[bool, Any]) -> Run:
    is_sqlite, cursor = database

    def carry_out(statement: Statement, rows: Sequence[Sequence[Any]]) -> None:
        parameters = statement.parameters(rows)
        if is_sqlite:
            cursor.executemany(statement.sql.replace("%s", "?"), parameters)
        else:
            cursor.execute(statement.sql, parameters[0])

    return carry_out


def stored(database: tuple[bool, Any]) -> list[Any]:
    is_sqlite, cursor = database
    cursor.execute('SELECT "url", "words", "end" FROM "rows" ORDER BY "url"')
    found = cursor.fetchall()
    return [(url, json.loads(words) if is_sqlite else words, end) for url, words, end in found]


def test_rows_are_inserted_changed_and_deleted(database: tuple[bool, Any], run: Run) -> None:
    is_sqlite, _ = database
    columns = (URL, WORDS, END)
    rows = [("a", ["x"], 1), ("b", [], None), ("c'\"%s\\", ["Ä", "\U0001f600"], 3)]
    run(insertion("rows", columns, is_sqlite), rows)
    assert stored(database) == rows
    run(alteration("rows", (WORDS, END, URL), is_sqlite), [(["y"], None, "a"), ([], 4, "none")])
    run(deletion("rows", (URL, END), is_sqlite), [("b", 7), ("c'\"%s\\", 3)])
    assert stored(database) == [("a", ["y"], None), ("b", [], None)]


def test_a_row_that_is_there_is_left_or_refused(database: tuple[bool, Any], run: Run) -> None:
    is_sqlite, _ = database
    columns = (URL, WORDS, END)
    run(insertion("rows", columns, is_sqlite), [("a", [], 1)])
    run(insertion("rows", columns, is_sqlite, leaves=True), [("a", [], 2), ("b", [], 2)])
    assert stored(database) == [("a", [], 1), ("b", [], 2)]
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        run(insertion("rows", columns, is_sqlite), [("c", [], 3), ("a", [], 3)])


def test_postgresql_is_given_all_rows_at_once() -> None:
    one = insertion("rows", (URL, END), is_sqlite=False).parameters([("a", 1), ("b", 2)])
    assert one == [['[{"url":"a","end":1},{"url":"b","end":2}]']]
