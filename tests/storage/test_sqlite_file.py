"""A new SQLite file can give space back, connections wait for nobody who writes, and commits that a
disk has damaged are counted."""

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


def _with_commits(folder: Path, number: int) -> tuple[Path, bytes]:
    """A database that was ended by SIGKILL after so many commits, and its write-ahead log."""
    live, left = folder / "live.sqlite3", folder / "left.sqlite3"
    with closing(sqlite3.connect(live, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (x)")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for value in range(number):
            writer.execute("INSERT INTO t VALUES (?)", [value])
        log = live.with_name("live.sqlite3-wal").read_bytes()
        left.write_bytes(live.read_bytes())
    return left, log


def _rows(database: Path) -> int:
    with closing(sqlite3.connect(database)) as reader:
        return int(reader.execute("SELECT count(*) FROM t").fetchone()[0])


@pytest.mark.parametrize(("frame", "lost"), [(0, 9), (4, 5), (7, 2)])
def test_commits_that_one_bit_has_made_unreadable_are_counted_and_kept_aside(
    tmp_path: Path, frame: int, lost: int
) -> None:
    """Of nine; SQLite itself says nothing of them."""
    database, log = _with_commits(tmp_path, 9)
    size = (len(log) - 32) // 9
    changed = bytearray(log)
    changed[32 + frame * size + 1000] ^= 4
    path = database.with_name("left.sqlite3-wal")
    path.write_bytes(changed)
    found = sqlite_file.set_lost_commits_aside(database)
    assert found is not None and found[0] == lost
    assert found[1] is not None and found[1].read_bytes() == changed
    assert _rows(database) == 9 - lost
    assert sqlite_file.set_lost_commits_aside(database) is None, "it is told once"


@pytest.mark.parametrize("cut", [0, 1, 2000, 4119, 4121])
def test_of_a_power_cut_nothing_is_said(tmp_path: Path, cut: int) -> None:
    """It takes of the last commit what had not reached the disk; nobody was told of that one."""
    database, log = _with_commits(tmp_path, 9)
    database.with_name("left.sqlite3-wal").write_bytes(log[: len(log) - cut])
    assert sqlite_file.set_lost_commits_aside(database) is None
    assert _rows(database) == (9 if not cut else 8 if cut <= 4120 else 7)
    assert not list(tmp_path.glob("*damaged*"))


def test_frames_of_a_log_that_was_begun_again_are_no_commits_of_it(tmp_path: Path) -> None:
    database, log = _with_commits(tmp_path, 9)
    path = database.with_name("left.sqlite3-wal")
    path.write_bytes(log)
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_checkpoint(FULL)")
        writer.execute("INSERT INTO t VALUES (1)")  # over the first of them
        again, copy = path.read_bytes(), tmp_path / "copy.sqlite3"
        copy.write_bytes(database.read_bytes())
    assert len(again) == len(log)
    copy.with_name("copy.sqlite3-wal").write_bytes(again)
    assert sqlite_file.set_lost_commits_aside(copy) is None
    assert _rows(copy) == 10
