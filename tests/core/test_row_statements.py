"""Many rows with one statement: the same rows on either database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest

from msgnode.core.row_statements import (
    LARGEST,
    Column,
    Statement,
    alteration,
    deletion,
    insertion,
)

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
        for sql, parameters in statement.executions(rows):
            cursor.executemany(sql.replace("%s", "?") if is_sqlite else sql, parameters)

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


@pytest.mark.parametrize("number", [1, 2, 63, 64, 65, 200])
def test_any_number_of_rows_is_inserted_changed_and_deleted(
    database: tuple[bool, Any], run: Run, number: int
) -> None:
    is_sqlite, _ = database
    rows = [(f"{each:03}", [str(each)], each) for each in range(number)]
    run(insertion("rows", (URL, WORDS, END), is_sqlite), rows)
    assert stored(database) == rows
    run(alteration("rows", (END, URL), is_sqlite), [(-end, url) for url, _, end in rows])
    assert [end for *_, end in stored(database)] == [-end for *_, end in rows]
    *gone, _ = rows
    run(deletion("rows", (URL, END), is_sqlite), [(url, -end) for url, _, end in gone])
    assert [url for url, *_ in stored(database)] == [rows[-1][0]]
    run(deletion("rows", (URL,), is_sqlite), [(url,) for url, *_ in rows])
    assert stored(database) == []


def test_no_rows_are_no_statement_of_sqlite() -> None:
    assert list(insertion("rows", (URL, END), is_sqlite=True).executions([])) == []


def test_sqlite_is_given_many_rows_with_one_of_few_texts() -> None:
    executions = list(
        insertion("rows", (URL, END), is_sqlite=True).executions(
            [(str(each), each) for each in range(2 * LARGEST + 11)]
        )
    )
    sizes = [[len(values) // 2 for values in parameters] for _, parameters in executions]
    assert sizes == [[LARGEST, LARGEST], [8], [2], [1]]
    assert executions[-2][0] == 'INSERT INTO "rows" ("url", "end") VALUES (%s, %s), (%s, %s)'


def test_sqlite_finds_what_is_deleted_by_an_index() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute('CREATE TABLE "rows" ("url" text, "end" integer, UNIQUE ("url", "end"))')
        rows = [(str(each), each) for each in range(LARGEST)]
        ((sql, (values,)),) = deletion("rows", (URL, END), is_sqlite=True).executions(rows)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql.replace('%s', '?')}", values)
        steps = [step for *_, step in plan.fetchall()]
    assert any("INDEX" in step for step in steps)
    assert not any(step.startswith("SCAN") for step in steps)


def test_postgresql_is_given_all_rows_at_once() -> None:
    ((_, (one,)),) = insertion("rows", (URL, END), is_sqlite=False).executions([("a", 1), ("b", 2)])
    assert one == ['[{"url":"a","end":1},{"url":"b","end":2}]']
