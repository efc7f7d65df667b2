"""PostgreSQL: what is backed up while it is written comes back, and a node's rows move there."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests import databases
from tests.backup.test_backup import fails
from tests.node import Node, running

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]  # many processes, one after another

FILLED = """
import uuid
from django.contrib.auth import get_user_model as users
from django.utils import timezone
from msgnode.identity.provider import keys
from msgnode.models import *
keys.jwk_set()
alice = users().objects.create_superuser('alice', password='a long enough passphrase')
Issuer.objects.create(name='one', url='https://one.example', domains='été ☃')
sessions = Session.objects.bulk_create(
    Session(runtime_url=f'runtime://localhost/{number}', handshake='ws',
            identity={'n': number, 'f': 0.1, 'nested': [None, True, 'ü']})
    for number in range(1200))
Allocation.objects.bulk_create(
    Allocation(address=f'comm://localhost/{number}', scheme='comm', session=session)
    for number, session in enumerate(sessions))
AuditEntry.objects.create(actor='alice', action='test', object='line\\nbreak\\ttab \\\\N')
"""


@pytest.fixture
def database(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Makes empty databases: `database()` is the URL of one."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(databases.database(postgres_url))


def filled(place: Path, template: Path) -> Node:
    """A node on SQLite with some rows; it does not run."""
    place.mkdir()
    shutil.copy(template, place / "node.sqlite3")
    node = Node(place)
    node.manage("shell", "--verbosity", "0", "-c", FILLED)
    return node


def rows(url: str) -> dict[str, list[Any]]:
    """Every row of every table, but of the workers, which are of a running node."""
    with psycopg.connect(url) as server:
        names = server.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        return {
            name: sorted(server.execute(_all(name)).fetchall(), key=repr)
            for (name,) in names
            if name not in ("msgnode_worker", "django_migrations")
        }


def _all(table: str) -> sql.Composed:
    return sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))


def test_a_node_moves_with_every_row_and_runs_there(
    tmp_path: Path, template: Path, database: Callable[[], str]
) -> None:
    node = filled(tmp_path / "node", template)
    url = database()
    told = json.loads(node.manage("move_to", url, "--json"))
    assert (told["rows"]["msgnode_session"], told["rows"]["msgnode_allocation"]) == (1200, 1200)
    assert "msgnode_move" not in rows(url)
    status, said = fails(node, "move_to", url)
    assert (status, "has tables already" in said) == (2, True), said
    with running(tmp_path / "there", DATABASE_URL=url) as moved:
        assert moved.get("/health/ready") == 200
        script = (
            "from msgnode.models import *\n"
            "print(AuditEntry.objects.create(actor='a', action='b', object='c').pk > 1)\n"
            "print(Session.objects.count())\n"
        )
        assert moved.manage("shell", "--verbosity", "0", "-c", script).split()[-1] == "1200"
        status, said = fails(node, "move_to", "postgres://nobody@127.0.0.1:1/none")
        assert (status, "out of reach" in said) == (2, True), said


def test_a_move_that_was_killed_goes_on_and_one_of_a_changed_source_begins_again(
    tmp_path: Path, template: Path, database: Callable[[], str]
) -> None:
    node = filled(tmp_path / "node", template)
    url, whole = database(), database()
    script = (
        "import os\n"
        "from msgnode.backup import move\n"
        "portion = move._copy_portion\n"
        "def killed(cursor, statement, model, *rest):\n"
        "    portion(cursor, statement, model, *rest)\n"
        "    if model._meta.db_table == 'msgnode_allocation': os._exit(9)\n"
        "move._copy_portion = killed\n"
        f"move.move({url!r}, print)\n"
    )
    with pytest.raises(subprocess.CalledProcessError) as killed:
        node.manage("shell", "--verbosity", "0", "-c", script)
    assert killed.value.returncode == 9, killed.value.stderr
    there = rows(url)
    assert len(there["msgnode_session"]) == 1200
    assert there["msgnode_allocation"] == []
    assert "msgnode_session: 1,200 rows, there already" in node.manage("move_to", url)
    node.manage("move_to", whole)
    assert rows(url) == rows(whole)

    other = database()
    with pytest.raises(subprocess.CalledProcessError):
        node.manage("shell", "--verbosity", "0", "-c", script.replace(url, other))
    gone = "Session.objects.filter(runtime_url__endswith='/1').delete()"
    change = f"from msgnode.models import *; {gone}"
    node.manage("shell", "--verbosity", "0", "-c", change)
    assert "it begins again" in node.manage("move_to", other)
    assert len(rows(other)["msgnode_session"]) == 1199


def test_a_move_that_is_ended_in_and_behind_every_table_goes_on_and_has_every_row(
    tmp_path: Path, template: Path, database: Callable[[], str]
) -> None:
    node = filled(tmp_path / "node", template)
    url, whole = database(), database()
    script = (
        "from django.contrib.auth.models import Group\n"
        "from msgnode.backup import move\n"
        "Group.objects.order_by('pk').first().delete()\n"  # a role, which migrate makes anew
        "class Ended(BaseException): pass\n"
        "ends = set()\n"
        "executor, known = move.MigrationExecutor, {}\n"
        "def known_executor(of):\n"  # its tables stay as they are
        "    return known.get(of.alias) or known.setdefault(of.alias, executor(of))\n"
        "def ending(act):\n"
        "    def act_and_end(model):\n"
        "        number = act(model)\n"
        "        if (act, model) not in ends:\n"
        "            ends.add((act, model))\n"
        "            raise Ended\n"
        "        return number\n"
        "    return act_and_end\n"
        "move._copy = ending(move._copy)\n"  # in a table, which is behind the one before it
        "compare = move._compare\n"
        "move._compare = lambda model, last=ending(lambda _: None): last(None) or compare(model)\n"
        "while True:\n"
        "    try:\n"
        f"        moved = move.move({url!r}, print)\n"
        "        break\n"
        "    except Ended: move.MigrationExecutor = known_executor\n"
        "print(len(moved), len(ends))\n"
    )
    said = node.manage("shell", "--verbosity", "0", "-c", script, seconds=300).split()
    tables, ended = map(int, said[-2:])
    assert tables > 50
    assert ended == tables + 1  # behind the last one, too
    node.manage("move_to", whole)
    assert rows(url) == rows(whole)


def test_a_row_that_postgresql_does_not_take_is_named_and_a_running_node_is_refused(
    tmp_path: Path, template: Path, database: Callable[[], str]
) -> None:
    node = filled(tmp_path / "node", template)
    url = database()
    for change in ("'x' * 200", "'a\\x00b'"):
        script = (
            "from msgnode.models import *\n"
            f"print(AuditEntry.objects.create(actor={change}, action='a', object='o').pk)\n"
        )
        key = node.manage("shell", "--verbosity", "0", "-c", script).split()[-1]
        status, said = fails(node, "move_to", url)
        assert (status, f"msgnode_auditentry, row {key}:" in said) == (2, True), said
        mend = f"from msgnode.models import *; AuditEntry.objects.filter(pk={key}).delete()"
        node.manage("shell", "--verbosity", "0", "-c", mend)
    node.start()
    try:
        status, said = fails(node, "move_to", url)
        assert (status, "serves this database" in said) == (2, True), said
    finally:
        node.terminate()
        assert node.status() == 0
    node.manage("move_to", url)


def test_a_backup_of_a_running_node_is_restored_row_by_row(
    tmp_path: Path, template: Path, migrated_url: str, database: Callable[[], str]
) -> None:
    url, target = migrated_url, database()
    archive = str(tmp_path / "backup.tar.gz")
    with running(tmp_path / "there", template, DATABASE_URL=url) as node:
        node.manage("shell", "--verbosity", "0", "-c", FILLED)
        node.manage("backup", "--output", archive)
        status, said = fails(node, "restore", archive, "--replace")
        assert (status, "serves this database" in said) == (2, True), said
    (tmp_path / "new").mkdir()
    new = Node(tmp_path / "new", DATABASE_URL=target)
    new.manage("restore", archive)
    there = rows(target)
    assert len(there["msgnode_session"]) == 1200
    with _stopped(tmp_path / "there", url) as again:
        again.manage("restore", archive, "--replace")
    assert rows(url) == there
    status, said = fails(new, "restore", archive)
    assert (status, "has tables already" in said) == (2, True), said
    other = Node(tmp_path / "new", DATABASE_URL=target, SECRET_KEY="another")
    status, said = fails(other, "restore", archive, "--replace")
    assert (status, "encrypted with another key" in said) == (2, True), said
    assert rows(target) == there
    of_sqlite = Node(tmp_path / "sqlite")
    of_sqlite.data_dir.mkdir()
    shutil.copy(template, of_sqlite.data_dir / "node.sqlite3")
    status, said = fails(of_sqlite, "restore", archive, "--replace")
    assert (status, "is of a database of postgresql" in said) == (1, True), said
    with running(tmp_path / "runs", template, DATABASE_URL=target) as node:
        assert node.get("/health/ready") == 200


@contextmanager
def _stopped(place: Path, url: str) -> Iterator[Node]:
    """The node of a database whose worker was killed: its lease has to end first."""
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("UPDATE msgnode_worker SET lease_until = now() - interval '1 minute'")
    yield Node(place, DATABASE_URL=url)
