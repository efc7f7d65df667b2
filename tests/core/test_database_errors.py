"""What an error of the database means, by the code behind it.

The limit of a wait for the database: the process's, or a shorter one of what runs now.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator

import psycopg
import pytest

from msgnode.core import database_errors, database_limit
from msgnode.core.database_limit import at_most, limit_process, seconds


def of_sqlite(code: int) -> Exception:
    cause = sqlite3.OperationalError("x")
    cause.sqlite_errorcode = code
    return behind(cause)


def behind(cause: Exception) -> Exception:
    error = Exception("of Django")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (of_sqlite(sqlite3.SQLITE_BUSY), "locked"),
        (of_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), "locked"),
        (of_sqlite(sqlite3.SQLITE_FULL), "full"),
        (of_sqlite(sqlite3.SQLITE_IOERR_WRITE), "cannot be read or written"),
        (behind(psycopg.errors.DiskFull()), "full"),
        (behind(psycopg.errors.ReadOnlySqlTransaction()), "can only be read"),
        (behind(psycopg.errors.InsufficientPrivilege()), "refuses the node's role a right"),
        (behind(psycopg.errors.QueryCanceled()), "keeps rows locked"),
        (behind(psycopg.errors.TooManyConnections()), "no connection left"),
        (behind(psycopg.OperationalError("FATAL: sorry, too many clients already")), "no conn"),
        (behind(psycopg.errors.CannotConnectNow()), "starting or stopping"),
        (behind(psycopg.OperationalError("connection refused")), "out of reach"),
        (Exception("nothing behind it"), "out of reach"),
    ],
)
def test_the_cause_is_named(error: Exception, words: str) -> None:
    assert words in database_errors.in_words(error)


def test_only_a_full_disk_is_full_and_only_a_wrong_statement_is_a_fault() -> None:
    full, wrong = of_sqlite(sqlite3.SQLITE_FULL), of_sqlite(sqlite3.SQLITE_ERROR)
    assert (database_errors.is_full(full), database_errors.is_fault(full)) == (True, False)
    assert (database_errors.is_full(wrong), database_errors.is_fault(wrong)) == (False, True)
    assert database_errors.is_full(behind(psycopg.errors.DiskFull()))


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(database_limit, "_process", float("inf"))
    yield


@pytest.mark.usefixtures("unlimited")
def test_the_shortest_limit_holds_and_only_within_its_block() -> None:
    assert seconds() is None
    with at_most(3):
        assert seconds() == 3
        with at_most(5):
            assert seconds() == 3
        limit_process(2)
        assert seconds() == 2
    assert seconds() == 2


@pytest.mark.usefixtures("unlimited")
def test_a_thread_of_its_own_has_the_limit_of_the_process_alone() -> None:
    limit_process(30)
    found: list[float | None] = []
    with at_most(1):
        thread = threading.Thread(target=lambda: found.append(seconds()))
        thread.start()
        thread.join(10)
    assert found == [30]
