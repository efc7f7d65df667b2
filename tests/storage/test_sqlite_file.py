"""A new SQLite file can give space back, and a connection to it waits for nobody who writes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connection, connections

from msgnode.storage import sqlite_file

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="about SQLite's files"),
]


def _connection_to(file: Path, alias: str) -> object:
    return type(connections["default"])(connection.settings_dict | {"NAME": str(file)}, alias)


def test_an_empty_file_is_made_with_incremental_vacuum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = _connection_to(tmp_path / "new.sqlite3", "new")
    monkeypatch.setattr(sqlite_file, "connections", {"new": other})
    sqlite_file.prepare(using="new")
    other.close()  # type: ignore[attr-defined]
    with closing(sqlite3.connect(tmp_path / "new.sqlite3")) as made:
        made.execute("CREATE TABLE t (x)")
        assert made.execute("PRAGMA auto_vacuum").fetchone() == (2,)


def test_a_file_that_has_tables_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "old.sqlite3")) as old:
        old.execute("CREATE TABLE t (x)")
    other = _connection_to(tmp_path / "old.sqlite3", "old")
    monkeypatch.setattr(sqlite_file, "connections", {"old": other})
    sqlite_file.prepare(using="old")
    other.close()  # type: ignore[attr-defined]
    with closing(sqlite3.connect(tmp_path / "old.sqlite3")) as old:
        assert old.execute("PRAGMA auto_vacuum").fetchone() == (0,)


def test_a_new_connection_does_not_wait_for_a_transaction_of_another(tmp_path: Path) -> None:
    file = tmp_path / "busy.sqlite3"
    with closing(sqlite3.connect(file)) as made:
        made.execute("PRAGMA auto_vacuum=INCREMENTAL")
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE t (x)")
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        settings = dict(connection.settings_dict, NAME=str(file))
        settings["OPTIONS"] = {**settings["OPTIONS"], "timeout": 0}
        other = type(connections["default"])(settings, "busy")
        with closing(other), other.cursor() as cursor:  # "database is locked" where it would wait
            cursor.execute("SELECT count(*) FROM t")
            assert cursor.fetchone() == (0,)
