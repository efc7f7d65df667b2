"""Migrations of PostgreSQL beside those who write, others who migrate, and where they cannot be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.backup.test_backup import fails
from tests.databases import database
from tests.node import Node
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

WAITING = (
    "SELECT count(*) > 0 FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
NAMES = "SELECT app, name FROM django_migrations"


@contextmanager
def migrating(place: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    """`manage.py migrate`, as a process; killed at the end of the block."""
    node = Node(place, DATABASE_URL=url)
    node.data_dir.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "manage.py", "migrate", "--no-input", "--verbosity", "0"],
        cwd=node.root, env=node.environment, text=True, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit status of a process, and what it said to its end."""
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def test_of_several_that_migrate_at_once_each_finds_the_tables_complete(
    tmp_path: Path, postgres_url: str
) -> None:
    with database(postgres_url) as url, ExitStack() as stack:
        at_once = [
            stack.enter_context(migrating(tmp_path / str(number), url)) for number in range(3)
        ]
        for process in at_once:
            status, said = ended(process)
            assert status == 0, said
        with psycopg.connect(url) as server:
            names = server.execute(NAMES).fetchall()
        assert len(names) == len(set(names)) > 50


def test_a_migration_that_waits_for_a_backup_lets_others_write_and_is_made_behind_it(
    tmp_path: Path, migrated_url: str
) -> None:
    node = Node(tmp_path / "n", DATABASE_URL=migrated_url)
    node.data_dir.mkdir()
    node.manage("migrate", "msgnode", "0021", "--verbosity", "0")
    with (
        psycopg.connect(migrated_url) as reader,
        psycopg.connect(migrated_url, autocommit=True) as writer,
    ):
        reader.execute("SELECT count(*) FROM msgnode_peer")
        with migrating(tmp_path / "m", migrated_url) as process:
            until(lambda: writer.execute(WAITING).fetchone() == (True,), 60)
            writer.execute("SET statement_timeout = '8s'")
            writer.execute("UPDATE msgnode_peer SET domain = domain")
            reader.rollback()
            status, said = ended(process)
        assert status == 0, said
        assert "in use by a transaction that takes long" in said
        assert ("msgnode", "0022_signed_stubs_message_ids") in writer.execute(NAMES).fetchall()


def test_a_database_that_cannot_keep_every_text_is_refused(
    tmp_path: Path, postgres_url: str, template: Path
) -> None:
    with database(postgres_url, encoding="LATIN1") as url:
        with migrating(tmp_path / "n", url) as process:
            status, said = ended(process)
        assert status == 1
        assert said.startswith("CommandError: The encoding of the database is LATIN1"), said
        shutil.copy(template, tmp_path / "node.sqlite3")
        status, said = fails(Node(tmp_path), "move_to", url)
        assert (status, "The encoding of the database is LATIN1" in said) == (2, True), said


def test_a_role_without_a_right_is_told_in_one_line(tmp_path: Path, postgres_url: str) -> None:
    role = sql.Identifier(f"r{uuid4().hex[:12]}")
    with (
        database(postgres_url) as url,
        psycopg.connect(postgres_url, autocommit=True) as server,
    ):
        server.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'p@/s#s?%'").format(role))
        try:
            parts = urlsplit(url)
            place = parts.netloc.rpartition("@")[2]
            theirs = f"{role.as_string(None)[1:-1]}:p%40%2Fs%23s%3F%25@{place}"
            with migrating(tmp_path / "n", parts._replace(netloc=theirs).geturl()) as process:
                status, said = ended(process)
        finally:
            server.execute(sql.SQL("DROP ROLE {}").format(role))
    assert status == 1
    assert "permission denied for schema public" in said
    assert len(said.splitlines()) == 1, said
