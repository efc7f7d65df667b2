"""PostgreSQL while a backup is made or restored: it goes away, it has tables of others, limits of
its own, rows that it does not take, tables of an earlier version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg
import pytest
from psycopg import sql

from msgnode.backup import archive
from tests import databases
from tests.backup.test_backup import fails
from tests.node import Node
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SEALED = "from msgnode.identity.provider import keys; keys.jwk_set()"
TERMINATED = """
import psycopg
from django.core.management import call_command
from django.db import connection
from msgnode.backup import postgresql
columns = postgresql._columns
def ended(cursor, table):
    found = columns(cursor, table)
    if table == 'registry_hyperty':
        with psycopg.connect({url!r}, autocommit=True) as server:
            own = cursor.connection.info.backend_pid
            server.execute('SELECT pg_terminate_backend(%s, 5000)', [own])
    return found
postgresql._columns = ended
call_command({command!r}, {file!r})
"""
WAITING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock' AND now() - query_start > make_interval(secs => %s)"
)


@pytest.fixture
def database(postgres_url: str, postgres_template: str) -> Iterator[Callable[[str], str]]:
    """Makes databases: `database(name of the original)` is the URL of a copy."""
    with ExitStack() as stack:

        def make(original: str = "template1") -> str:
            return stack.enter_context(databases.database(postgres_url, original))

        yield make


@pytest.fixture
def node(tmp_path: Path, migrated_url: str) -> Node:
    """A node that does not run, with a signing key that it has encrypted."""
    made = Node(tmp_path / "node", DATABASE_URL=migrated_url)
    made.data_dir.mkdir()
    made.manage("shell", "--verbosity", "0", "-c", SEALED)
    return made


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_whose_server_ends_the_session_is_told_so_and_nothing_has_changed(
    tmp_path: Path, node: Node, migrated_url: str, database: Callable[..., str], command: str
) -> None:
    place = tmp_path / "backups"
    file, url = place / "one.tar.gz", migrated_url
    if command == "restore":
        node.manage("backup", "--output", str(file))
        url = database()
        node = Node(tmp_path / "new", DATABASE_URL=url)
        node.data_dir.mkdir()
    words = "--output={file}" if command == "backup" else "{file}"
    script = TERMINATED.format(url=url, command=command, file=words.format(file=file))
    status, said = fails(node, "shell", "--verbosity", "0", "-c", script)
    assert (status, "terminating connection" in said) == (2, True), said
    assert [each.name for each in place.iterdir()] == ["one.tar.gz"] * (command == "restore")


def test_a_limit_that_the_server_has_for_statements_is_none_of_a_backups(
    tmp_path: Path, node: Node, migrated_url: str
) -> None:
    output = tmp_path / "one.tar.gz"
    with psycopg.connect(migrated_url, autocommit=True) as server:
        name = sql.Identifier(server.info.dbname)
        server.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = '2s'").format(name))
    with (
        psycopg.connect(migrated_url) as holder,
        psycopg.connect(migrated_url, autocommit=True) as looker,
        subprocess.Popen(
            [sys.executable, "manage.py", "backup", "--output", str(output)],
            cwd=node.root, env=node.environment, text=True, stderr=subprocess.PIPE,
        ) as backup,
    ):  # fmt: skip
        holder.execute("LOCK TABLE registry_hyperty IN ACCESS EXCLUSIVE MODE")
        until(lambda: backup.poll() is not None or looker.execute(WAITING, [2.5]).fetchall(), 60)
        holder.rollback()
        _, said = backup.communicate(timeout=60)
    assert backup.returncode == 0, said
    assert output.exists()


def test_tables_of_others_are_not_in_a_backup_and_no_restore_drops_them(
    tmp_path: Path, node: Node, migrated_url: str
) -> None:
    file = str(tmp_path / "one.tar.gz")
    with psycopg.connect(migrated_url, autocommit=True) as server:
        server.execute("CREATE TABLE accounting (n integer)")
        server.execute("INSERT INTO accounting VALUES (7)")
        server.execute("CREATE TABLE msgnode_ofalaterversion (n integer)")
    node.manage("backup", "--output", file)
    (tmp_path / "out").mkdir()
    assert "accounting" not in archive.extract(Path(file), tmp_path / "out").database.rows
    with psycopg.connect(migrated_url, autocommit=True) as server:
        server.execute("DROP TABLE msgnode_ofalaterversion")
    node.manage("backup", "--output", f"{file}.2")
    node.manage("restore", f"{file}.2", "--replace")
    with psycopg.connect(migrated_url) as server:
        assert server.execute("SELECT n FROM accounting").fetchall() == [(7,)]
        server.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('z', 'z', now())"
        )
        server.execute("CREATE TABLE z_ofanapp (n integer)")
        server.execute("CREATE TABLE msgnode_ofalaterversion (n integer)")
    node.manage("restore", f"{file}.2", "--replace")
    with psycopg.connect(migrated_url) as server:
        left = "SELECT tablename FROM pg_tables WHERE tablename ~ '^(z_|msgnode_ofal|accounting)'"
        assert server.execute(left).fetchall() == [("accounting",)]


def rewritten(file: Path, place: Path, table: str, change: Callable[[bytes], bytes]) -> Path:
    """An archive with other rows of a table, whose digests fit."""
    made = place / f"changed-{table}.tar.gz"
    with archive.staging(place) as folder:
        said = archive.extract(file, folder)
        part = folder / "tables" / table
        part.write_bytes(change(part.read_bytes()))
        parts = {**said.parts, f"tables/{table}": archive.digest_of(part)}
        archive.write(made, folder, msgspec.structs.replace(said, parts=parts))
    return made


def test_what_cannot_be_restored_is_named_by_the_check_and_by_the_restore(
    tmp_path: Path, node: Node, database: Callable[..., str]
) -> None:
    file = tmp_path / "one.tar.gz"
    node.manage("backup", "--output", str(file))
    empty = database()
    other = Node(tmp_path / "other", DATABASE_URL=empty, SECRET_KEY="another")
    new = Node(tmp_path / "new", DATABASE_URL=empty)
    for each in (other, new):
        each.data_dir.mkdir()

    short = rewritten(file, tmp_path, "auth_permission", lambda rows: rows[: rows.index(b"\n") + 1])
    for words in (("--check",), ()):
        status, said = fails(other, "restore", str(file), *words)
        assert (status, "encrypted with another key" in said) == (2, True), said
        status, said = fails(new, "restore", str(short), *words)
        assert (status, "auth_permission has 1 rows, not" in said) == (1, True), said
    odd = rewritten(file, tmp_path, "django_content_type", lambda rows: b"x" + rows)
    status, said = fails(new, "restore", str(odd))
    assert (status, 'invalid input syntax for type integer: "x' in said) == (2, True), said
    with psycopg.connect(empty) as server:
        assert (
            server.execute("SELECT tablename FROM pg_tables WHERE schemaname='public'").fetchall()
            == []
        )
    assert "could be restored" in new.manage("restore", str(file), "--check")
    new.manage("restore", str(file))


def test_an_archive_of_an_earlier_version_is_restored_and_migrated(
    tmp_path: Path, node: Node, database: Callable[..., str]
) -> None:
    file, url = str(tmp_path / "earlier.tar.gz"), database()
    node.manage("migrate", "msgnode", "0020", "--verbosity", "0")
    node.manage("backup", "--output", file)
    new = Node(tmp_path / "new", DATABASE_URL=url)
    new.data_dir.mkdir()
    new.manage("restore", file)
    new.manage("migrate", "--verbosity", "0")
    with psycopg.connect(url) as server:
        assert server.execute("SELECT count(*) FROM msgnode_providerkey").fetchone() != (0,)
        assert server.execute("SELECT count(*) FROM msgnode_storedmessage").fetchone() == (0,)
