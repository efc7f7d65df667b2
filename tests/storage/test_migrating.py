"""Migrations beside those who write, beside others, from before 1.0, and where they cannot be."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
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
BEFORE_1_0 = """
import json, sys, django
django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

named = dict(json.loads(sys.argv[1]))

class Before(MigrationLoader):
    def load_disk(self):
        super().load_disk()
        for key, migration in [*self.disk_migrations.items()]:
            if key[0] in named and migration.replaces:
                del self.disk_migrations[key]

executor = MigrationExecutor(connection)
executor.loader = Before(connection)
leaves = executor.loader.graph.leaf_nodes()
ours = [(app, name or dict(leaves)[app]) for app, name in named.items()]
executor.migrate([leaf for leaf in leaves if leaf[0] not in named] + ours)
"""
TABLES = """
import json, django
django.setup()
from django.apps import apps
from django.db import connection

found = {}
with connection.cursor() as cursor:
    look = connection.introspection
    for name in sorted(look.table_names(cursor)):
        if name.startswith(("msgnode_", "policies_", "qos_", "registry_", "spark_")):
            columns = look.get_table_description(cursor, name)
            constraints = look.get_constraints(cursor, name).values()
            found[name] = [
                sorted([c.name, str(c.type_code), c.null_ok, str(c.default), str(c.display_size)]
                       for c in columns),
                sorted(json.dumps([each.get(key) for key in (
                    "columns", "orders", "primary_key", "unique", "foreign_key", "check", "index",
                    "type")], default=str) for each in constraints),
            ]
    found["classes"] = sorted(apps.get_model("qos", "TrafficClass").objects.values_list("name"))
print(json.dumps(found))
"""
SOME = {
    "msgnode": "0012_device_outlet",
    "policies": "0002_what_was_known",
    "qos": "0001_initial",
    "registry": "0001_initial",
    "spark": "0002_run_warning",
}


def _program(node: Node, text: str, *words: str) -> str:
    node.data_dir.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", text, *words], cwd=node.root, capture_output=True, text=True,
        env={**node.environment, "DJANGO_SETTINGS_MODULE": "msgnode.settings"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _tables(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_program(node, TABLES))
    return found


def migrate_as_before_1_0(node: Node, **names: str) -> None:
    """Migrate a database without tables to these migrations of apps, "" for the last one."""
    _program(node, BEFORE_1_0, json.dumps(names))


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
            stack.enter_context(migrating(tmp_path / str(number), url)) for number in range(2)
        ]
        for process in at_once:
            status, said = ended(process)
            assert status == 0, said
        with psycopg.connect(url) as server:
            names = server.execute(NAMES).fetchall()
        assert len(names) == len(set(names)) > 50


def test_a_migration_that_waits_for_a_backup_lets_others_write_and_is_made_behind_it(
    tmp_path: Path, postgres_url: str
) -> None:
    with (
        database(postgres_url) as url,
        psycopg.connect(url) as reader,
        psycopg.connect(url, autocommit=True) as writer,
    ):
        names = {"policies": "", "qos": "", "registry": "", "spark": ""}
        earlier = Node(tmp_path / "n", DATABASE_URL=url)
        migrate_as_before_1_0(earlier, msgnode="0021_stored_messages", **names)
        reader.execute("SELECT count(*) FROM msgnode_peer")
        with migrating(tmp_path / "m", url) as process:
            until(lambda: writer.execute(WAITING).fetchone() == (True,), 60)
            writer.execute("SET statement_timeout = '8s'")
            writer.execute("UPDATE msgnode_peer SET domain = domain")
            reader.rollback()
            status, said = ended(process)
        assert status == 0, said
        assert "in use by a transaction that takes long" in said
        assert ("msgnode", "0022_signed_stubs_message_ids") in writer.execute(NAMES).fetchall()


def test_a_database_that_has_all_migrations_from_before_1_0_has_the_tables_of_a_new_one(
    tmp_path: Path, template: Path
) -> None:
    before, new = Node(tmp_path / "before"), Node(tmp_path / "new")
    migrate_as_before_1_0(before, **dict.fromkeys(SOME, ""))
    before.migrate()
    new.data_dir.mkdir()
    shutil.copy(template, new.data_dir / "node.sqlite3")
    assert _tables(before) == _tables(new)


def test_a_database_that_has_some_migrations_from_before_1_0_goes_on_with_them(
    tmp_path: Path, postgres_url: str, migrated_url: str
) -> None:
    new = Node(tmp_path / "new", DATABASE_URL=migrated_url)
    with database(postgres_url) as url:
        before = Node(tmp_path / "before", DATABASE_URL=url)
        migrate_as_before_1_0(before, **SOME)
        before.migrate()
        assert _tables(before) == _tables(new)


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
