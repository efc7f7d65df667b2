"""Tables of another version: a later one is not migrated, an earlier one is not served on."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from msgnode.storage import table_version
from tests.node import ROOT


@pytest.fixture
def later(db: None) -> None:
    with connection.cursor() as cursor:
        for app, name in (("msgnode", "9998_wings"), ("spark", "9999_wheels"), ("no_app", "1_x")):
            cursor.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)",
                [app, name, "2030-01-01T00:00:00Z"],
            )


def test_the_migrations_of_this_version_are_those_that_django_finds() -> None:
    found = MigrationLoader(None, ignore_no_migrations=True).disk_migrations or {}
    assert table_version.known() == set(found)


@pytest.mark.usefixtures("later")
def test_a_database_of_a_later_version_is_not_migrated_and_it_is_said_why() -> None:
    said = r"later version of the node: it has the migration msgnode\.9998_wings and 1 more, which"
    with pytest.raises(CommandError, match=said):
        call_command("migrate", interactive=False, verbosity=0)


@pytest.mark.usefixtures("later")
def test_a_worker_serves_on_tables_of_a_later_version_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "close", lambda: None)  # the test is a transaction of it
    with caplog.at_level(logging.WARNING):
        table_version.refuse_earlier()
    assert "msgnode.9998_wings and 1 more" in caplog.text


@pytest.mark.parametrize("role", ["node", "web"])
def test_nothing_serves_on_tables_of_an_earlier_version(
    tmp_path: Path, template: Path, role: str
) -> None:
    shutil.copy(template, tmp_path / "node.sqlite3")
    with closing(sqlite3.connect(tmp_path / "node.sqlite3")) as tables:
        tables.execute("DELETE FROM django_migrations WHERE app = 'registry' AND name LIKE '0002%'")
        tables.commit()
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "msgnode.servers.main"],
        cwd=ROOT,
        env={**kept, "DATA_DIR": str(tmp_path), "ROLE": role, "PORT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "it lacks the migration registry.0002_" in done.stderr
    assert "manage.py migrate" in done.stderr
    assert "Traceback" not in done.stderr
