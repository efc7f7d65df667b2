"""What is restored is what was backed up; what cannot be is named, and nothing changes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from msgnode.backup import in_use, restore, sqlite
from msgnode.backup.manifest import ArchiveFault
from msgnode.identity.encryption import encrypt
from msgnode.identity.provider import keys
from msgnode.models import Ban, Session, Worker

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="of an SQLite database"),
]


@pytest.fixture
def archive(tmp_path: Path, settings: Any) -> Path:
    """A backup of a node that has a session, a ban, a signing key and a worker that ran."""
    settings.DATA_DIR = tmp_path / "old"
    settings.DATA_DIR.mkdir()
    settings.SECRET_KEY = "the key that the node has made"
    settings.OWN_SECRET_KEY = settings.DATA_DIR / "secret_key"
    settings.OWN_SECRET_KEY.write_text(settings.SECRET_KEY)
    settings.RECORD = {**settings.RECORD, "URL": str(tmp_path / "record")}
    Session.objects.create(runtime_url="runtime://localhost/alice", handshake="ws")
    Ban.objects.create(value="runtime://localhost/mallory", reason="floods")
    Worker.objects.create(epoch="e", name="old", host="elsewhere", pid=1, state="ready")
    keys.jwk_set()
    restore.make(tmp_path / "backup.tar.gz")
    return tmp_path / "backup.tar.gz"


@pytest.fixture
def empty_node(
    archive: Path, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The directory of another node, which the settings now name. It has no database yet."""
    place = tmp_path / "new"
    place.mkdir()
    settings.DATA_DIR = place
    settings.SECRET_KEY = "made by the new node when it was started"
    settings.OWN_SECRET_KEY = place / "secret_key"
    settings.OWN_SECRET_KEY.write_text(settings.SECRET_KEY)
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "NAME", str(place / "node.sqlite3"))
        yield place
        connection.close()


def state(place: Path) -> dict[str, bytes]:
    """What a node would start with."""
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


def count(database: Path, table: str) -> int:
    with closing(sqlite3.connect(database)) as opened:
        return int(opened.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


def test_rows_and_key_are_back_and_no_worker_is(archive: Path, empty_node: Path) -> None:
    done = restore.restore(archive, replace=False)
    assert done.earlier is None
    assert (empty_node / "secret_key").read_text() == "the key that the node has made"
    assert Session.objects.get().runtime_url == "runtime://localhost/alice"
    assert Ban.objects.get().reason == "floods"
    assert not Worker.objects.exists()
    assert not [path for path in empty_node.iterdir() if "restore" in path.name]


def test_the_key_the_node_made_is_needed_to_open_what_it_has_sealed(
    archive: Path, empty_node: Path, settings: Any
) -> None:
    settings.OWN_SECRET_KEY = None  # the environment gives another one
    before = state(empty_node)
    with pytest.raises(restore.RestoreRefused, match="encrypted with another key"):
        restore.restore(archive, replace=False)
    assert {**before, "run.lock": b""}.keys() == state(empty_node).keys()
    settings.SECRET_KEY_FALLBACKS = ["the key that the node has made"]
    restore.restore(archive, replace=False)


@pytest.mark.parametrize(("table", "column"), sorted(sqlite.encrypted_columns()))
def test_an_archive_is_refused_of_whose_secrets_of_some_kind_none_can_be_read(
    tmp_path: Path, settings: Any, table: str, column: str
) -> None:
    copy = tmp_path / "copy"
    with closing(sqlite3.connect(copy)) as opened:
        opened.execute(f"CREATE TABLE {table} ({column} text)")
        opened.execute(f"INSERT INTO {table} VALUES (?)", [encrypt("the secret")])  # noqa: S608
        opened.commit()
    restore.refuse_other_key(sqlite.encrypted_values(copy))
    settings.SECRET_KEY = "another"
    with pytest.raises(restore.RestoreRefused, match="encrypted with another key"):
        restore.refuse_other_key(sqlite.encrypted_values(copy))


def test_a_log_whose_database_is_gone_is_not_taken_for_that_of_the_restored_one(
    archive: Path, empty_node: Path
) -> None:
    database = empty_node / "node.sqlite3"
    restore.restore(archive, replace=False)
    connection.close()
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("PRAGMA journal_mode=WAL")
        opened.execute("DELETE FROM msgnode_session")
        opened.commit()
        log = Path(f"{database}-wal").read_bytes()
    database.unlink()
    Path(f"{database}-wal").write_bytes(log)
    done = restore.restore(archive, replace=False)
    assert count(database, "msgnode_session") == 1
    assert done.earlier is not None
    assert (done.earlier / "node.sqlite3-wal").read_bytes() == log


def test_a_record_that_is_away_is_told_and_the_node_is_restored(
    archive: Path, empty_node: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_listed: object) -> list[str]:
        raise OSError("no answer of the object store")

    monkeypatch.setattr(restore, "lacking", away)
    said = StringIO()
    call_command("restore", str(archive), stdout=said)
    assert "was restored" in said.getvalue()
    assert "could not be checked: no answer of the object store" in said.getvalue()
    assert Session.objects.exists()


def test_a_database_that_is_there_is_set_aside(archive: Path, empty_node: Path) -> None:
    restore.restore(archive, replace=False)
    Session.objects.all().delete()
    connection.close()
    with pytest.raises(restore.RestoreRefused, match="is there already"):
        restore.restore(archive, replace=False)
    assert not Session.objects.exists()
    connection.close()
    earlier = restore.restore(archive, replace=True).earlier
    assert Session.objects.count() == 1
    assert earlier is not None
    assert count(earlier / "node.sqlite3", "msgnode_session") == 0


def test_a_worker_that_holds_a_lease_keeps_its_database(archive: Path, empty_node: Path) -> None:
    restore.restore(archive, replace=False)
    from datetime import timedelta

    from django.utils import timezone

    Worker.objects.create(
        epoch="f", name="other", host="elsewhere", pid=1, state="ready",
        lease_until=timezone.now() + timedelta(seconds=60),
    )  # fmt: skip
    with pytest.raises(in_use.InUse, match="other on elsewhere"):
        restore.restore(archive, replace=True)
    assert Worker.objects.count() == 1


def test_an_archive_of_a_later_version_is_refused_by_name(
    tmp_path: Path, archive: Path, empty_node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore.restore(archive, replace=False)
    MigrationRecorder(connection).record_applied("msgnode", "9999_tomorrow")
    restore.make(tmp_path / "later.tar.gz")
    before = count(empty_node / "node.sqlite3", "msgnode_session")
    for words in ((), ("--check",)):
        with pytest.raises(CommandError, match=r"later\.tar\.gz.*msgnode\.9999_tomorrow"):
            call_command("restore", str(tmp_path / "later.tar.gz"), *words)
    assert before == count(empty_node / "node.sqlite3", "msgnode_session")


def test_a_damaged_database_is_refused_although_its_digest_fits(
    tmp_path: Path, archive: Path, empty_node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was when the backup was made."""
    restore.restore(archive, replace=False)
    dumped = sqlite.dump

    def damaged(database: Path, folder: Path) -> Any:
        told = dumped(database, folder)
        copy = folder / sqlite.PART
        content = bytearray(copy.read_bytes())
        content[8192:8292] = b"\xff" * 100
        copy.write_bytes(content)
        return told

    monkeypatch.setattr(sqlite, "dump", damaged)
    restore.make(tmp_path / "damaged.tar.gz")
    with pytest.raises(ArchiveFault, match=r"node\.sqlite3 is damaged"):
        restore.check(tmp_path / "damaged.tar.gz")


def test_a_backup_says_what_it_has_and_refuses_a_name_that_is_taken(
    archive: Path, empty_node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restore.restore(archive, replace=False)
    call_command("backup", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["rows"]["msgnode_ban"] == 1
    assert set(told["parts"]) == {
        "node.sqlite3", "secret_key", "definitions.json", "record.json"
    }  # fmt: skip
    with pytest.raises(CommandError, match="exists"):
        call_command("backup", "--output", told["archive"])
