"""A node is backed up while it runs, and another begins with what the archive has."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from msgnode.backup.archive import extract
from tests.client import ALLOCATION, Client, code
from tests.e2e.test_full_disk import fill, small_disk  # noqa: F401  (a fixture)
from tests.federation.nodes import A, B, TwoNodes, answer_requests, come, subscribe
from tests.federation.test_two_linked import answered, is_linked
from tests.node import Node, running

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]  # many processes, one after another

PASSWORD = "a long enough passphrase"
OWN_KEY = {"SECRET_KEY": ""}  # the node makes one and keeps it
MADE = (
    "from django.contrib.auth import get_user_model as users\n"
    "from msgnode.identity.provider import keys\n"
    f"users().objects.create_superuser('alice', password='{PASSWORD}')\n"
    "print(keys.sign({'sub': 'alice'}))\n"
)


def fails(node: Node, *words: str) -> tuple[int, str]:
    """Status and words of a command that cannot be done."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        node.manage(*words)
    assert "Traceback" not in refused.value.stderr
    return refused.value.returncode, refused.value.stderr


def rows(database: Path) -> dict[str, list[Any]]:
    """Every row of every table, but of the workers, which are of a running node."""
    with closing(sqlite3.connect(database)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            table: sorted(connection.execute(f'SELECT * FROM "{table}"'), key=repr)  # noqa: S608
            for (table,) in tables.fetchall()
            if table not in ("msgnode_worker", "sqlite_sequence")
        }


def log_in(node: Node) -> int:
    with httpx.Client(base_url=f"http://127.0.0.1:{node.port}", trust_env=False) as browser:
        page = browser.get("/login/")
        form = {"username": "alice", "password": PASSWORD}
        found = re.search('name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert found, page.text
        form["csrfmiddlewaretoken"] = found[1]
        return browser.post("/login/", data=form).status_code


async def test_a_restored_node_knows_accounts_tokens_and_sessions(
    tmp_path: Path, template: Path
) -> None:
    archive = tmp_path / "monday.tar.gz"
    with running(tmp_path / "old", template, **OWN_KEY) as old:
        token = old.manage("shell", "--verbosity", "0", "-c", MADE).split()[-1]
        async with old.ws() as alice, old.ws() as bob:
            await alice.open()
            await bob.open()
            body = {"scheme": "comm", "value": {"number": 3}}
            allocated = (await alice.ask("create", ALLOCATION, body))["body"]["value"]["allocated"]
            await bob.subscribe(f"{allocated[0]}/changes")
            told = json.loads(
                await asyncio.to_thread(old.manage, "backup", "--output", str(archive), "--json")
            )
            assert told["rows"]["msgnode_session"] == 2
            kept = [(alice.runtime_url, alice.token), (bob.runtime_url, bob.token)]
    (tmp_path / "out").mkdir()
    extract(archive, tmp_path / "out")

    place = tmp_path / "new"
    place.mkdir()
    new = Node(place, **OWN_KEY)
    assert "could be restored" in new.manage("restore", str(archive), "--check")
    assert not (place / "node.sqlite3").exists()
    new.manage("restore", str(archive))
    assert rows(place / "node.sqlite3") == rows(tmp_path / "out" / "node.sqlite3")
    assert (place / "secret_key").stat().st_mode & 0o777 == 0o600
    try:
        new.start()
        assert log_in(new) == 302
        known = KeySet.import_key_set(json.loads(new.text("/o/.well-known/jwks.json")))
        assert jwt.decode(token, known, algorithms=["RS256"]).claims["sub"] == "alice"
        again = new.manage("shell", "--verbosity", "0", "-c", MADE.replace("users()", "#"))
        assert jwt.decode(again.split()[-1], known, algorithms=["RS256"]).claims["sub"] == "alice"
        async with new.ws() as alice, new.ws() as bob:
            for client, (runtime_url, session) in zip((alice, bob), kept, strict=True):
                assert code(await client.reopen(runtime_url, session)) == 200
            await alice.send("update", f"{allocated[0]}/changes", sender=allocated[0])
            await bob.expect(type="update", to=f"{allocated[0]}/changes")
    finally:
        new.kill()


class Peers(TwoNodes):
    """Two nodes with a link between them."""

    def introduce(self) -> None:
        both = ((self.a, B, self.b), (self.b, A, self.a))
        for node, domain, other in both:
            node.manage("peers", "add", domain, "--url", f"http://127.0.0.1:{other.port}")
            self.wait(lambda peer: peer["node_found"], node, domain)
            node.manage("peers", "approve", domain)
        for node, domain, _ in both:
            self.wait(is_linked, node, domain)


@asynccontextmanager
async def answering(client: Client) -> AsyncIterator[None]:
    """It answers what it is asked while the block runs."""
    task = asyncio.create_task(answer_requests(client))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_restored_beside_a_running_peer_a_node_is_linked_to_it_again(
    tmp_path: Path, template: Path
) -> None:
    """On another machine, as it was before the last messages; nobody does anything at the peer."""
    archive = tmp_path / "monday.tar.gz"
    of_b = {"FEDERATION": "listed", "FEDERATION_NETWORKS": "127.0.0.0/8"}
    nodes = Peers(tmp_path / "nodes", template, of_b)
    ours, theirs = f"hyperty://{A}/ours", f"hyperty://{B}/theirs"
    try:
        await asyncio.to_thread(nodes.start)
        await asyncio.to_thread(nodes.introduce)
        here, there = await come(nodes.a, A, "here"), await come(nodes.b, B, "there")
        assert code(await subscribe(here, A, ours)) == 200
        assert code(await subscribe(there, B, theirs)) == 200
        async with answering(there):
            await answered(here, theirs, ours)
            await asyncio.to_thread(nodes.a.manage, "backup", "--output", str(archive))
            for number in range(50):
                assert code(await here.ask("read", theirs, {"value": number}, sender=ours)) == 200
            nodes.a.kill()
            nodes.a.data_dir = tmp_path / "another machine"
            nodes.a.data_dir.mkdir()
            nodes.a.configure(DATA_DIR=nodes.a.data_dir)
            await asyncio.to_thread(nodes.a.manage, "restore", str(archive))
            await asyncio.to_thread(nodes.a.start)
            again = await nodes.a.ws().connect()
            await again.resume(here)
            await answered(again, theirs, ours)
        async with answering(again):
            await answered(there, ours, theirs)
        for node, domain in ((nodes.a, B), (nodes.b, A)):
            await asyncio.to_thread(nodes.wait, is_linked, node, domain)
    finally:
        nodes.kill()


def test_what_cannot_be_restored_is_named_and_changes_nothing(
    tmp_path: Path, template: Path
) -> None:
    archive = tmp_path / "backup.tar.gz"
    old, other = (Node(tmp_path / name, **OWN_KEY) for name in ("old", "other"))
    for node in (old, other):
        node.data_dir.mkdir()
        shutil.copy(template, node.data_dir / "node.sqlite3")
        node.manage("provider_key", "--rotate")
    old.manage("backup", "--output", str(archive))
    before = rows(other.data_dir / "node.sqlite3"), (other.data_dir / "secret_key").read_text()

    status, said = fails(other, "restore", str(archive))
    assert (status, "is there already; --replace" in said) == (2, True), said

    broken = tmp_path / "broken.tar.gz"
    content = bytearray(archive.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = b"\xff" * 64
    broken.write_bytes(content)
    status, said = fails(other, "restore", str(broken), "--replace")
    assert (status, "damaged" in said, str(broken) in said) == (1, True, True), said

    foreign = Node(other.data_dir)  # its SECRET_KEY is given by the environment
    status, said = fails(foreign, "restore", str(archive), "--replace")
    assert (status, "encrypted with another key" in said) == (2, True), said

    status, said = fails(old, "backup", "--output", str(archive))
    assert (status, "exists" in said) == (2, True), said

    missing = tmp_path / "not there"
    for place, words in ((missing, "there is no file"), (tmp_path, "is a directory")):
        status, said = fails(other, "restore", str(place), "--replace")
        assert (status, words in said, str(place) in said) == (2, True, True), said
        assert "Errno" not in said

    status, said = fails(other, "move_to", "nonsense")
    assert status == 2
    assert said.strip().splitlines() == [
        "CommandError: 'nonsense' is no URL of a PostgreSQL database, such as "
        "postgres://user:password@host/name."
    ]

    assert before == (rows(other.data_dir / "node.sqlite3"), before[1])
    assert not [path for path in other.data_dir.iterdir() if "restore" in path.name]


def test_a_node_does_not_start_on_half_a_restore_which_ends_where_it_is_taken_up(
    tmp_path: Path, template: Path
) -> None:
    """Whatever renames were done when it was killed."""
    archive = tmp_path / "backup.tar.gz"
    node = Node(tmp_path / "node", **OWN_KEY)
    node.data_dir.mkdir()
    shutil.copy(template, node.data_dir / "node.sqlite3")
    node.manage("backup", "--output", str(archive))
    key = (node.data_dir / "secret_key").read_text()
    node.manage("shell", "--verbosity", "0", "-c", MADE)
    killed = (
        "import os, sys\n"
        "sys.argv = ['manage.py', 'restore']\n"
        "from pathlib import Path\n"
        "from msgnode.backup import restore\n"
        "done = []\n"
        "rename, replace = Path.rename, Path.replace\n"
        "def counted(act):\n"
        "    def move(path, target):\n"
        "        if len(done) == {at}: os._exit(9)\n"
        "        done.append(path)\n"
        "        return act(path, target)\n"
        "    return move\n"
        "Path.rename, Path.replace = counted(rename), counted(replace)\n"
        "restore.restore(Path({archive!r}), replace=True)\n"
    )
    for at in range(1, 20):
        script = killed.format(at=at, archive=str(archive))
        try:
            node.manage("shell", "--verbosity", "0", "-c", script)
        except subprocess.CalledProcessError as ended:
            assert ended.returncode == 9, ended.stderr
        else:
            break
        unfinished = node.data_dir / "restore.unfinished"
        assert unfinished.exists()
        status, said = fails(node, "migrate")
        assert (status, "restore --finish" in said) == (1, True), said
        assert "Restored" in node.manage("restore", "--finish")
        assert not unfinished.exists()
        assert not rows(node.data_dir / "node.sqlite3")["auth_user"]
        assert (node.data_dir / "secret_key").read_text() == key
        shutil.rmtree(next(node.data_dir.glob("before-restore-*")))
    assert at > 3


def test_a_damaged_database_is_named_not_backed_up_and_replaced_by_a_backup(
    tmp_path: Path, template: Path
) -> None:
    node = Node(tmp_path / "node", **OWN_KEY)
    node.data_dir.mkdir()
    database, archive = node.data_dir / "node.sqlite3", tmp_path / "good.tar.gz"
    shutil.copy(template, database)
    node.manage("backup", "--output", str(archive))
    before = rows(database)
    with closing(sqlite3.connect(database)) as connection:
        where = "SELECT rootpage FROM sqlite_master WHERE name = 'msgnode_worker'"
        ((page,),) = connection.execute(where).fetchall()
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x55" * size)
    damaged = database.read_bytes()

    status, said = fails(node, "backup", "--output", str(tmp_path / "bad.tar.gz"))
    assert (status, f"{database} is damaged" in said) == (2, True), said
    assert not (tmp_path / "bad.tar.gz").exists()
    with pytest.raises(subprocess.CalledProcessError) as examined:
        node.manage("doctor")
    assert re.search("wrong +database +it is damaged", examined.value.stdout)
    with pytest.raises(AssertionError, match="the node ended"):
        node.start()
    assert "file is damaged" in node.log() and "manage.py restore" in node.log()
    assert "Traceback" not in node.log()
    assert database.read_bytes() == damaged

    assert "was restored" in node.manage("restore", str(archive), "--replace")
    assert rows(database) == before
    (kept,) = node.data_dir.glob("before-restore-*/node.sqlite3")
    assert kept.read_bytes() == damaged
    node.start()
    node.kill()


def test_a_disk_that_is_full_is_named_and_no_archive_is_there(
    tmp_path: Path,
    template: Path,
    small_disk: Path,  # noqa: F811
) -> None:
    node = Node(tmp_path / "node", **OWN_KEY)
    node.data_dir.mkdir()
    shutil.copy(template, node.data_dir / "node.sqlite3")
    before = rows(node.data_dir / "node.sqlite3")
    archive = tmp_path / "good.tar.gz"
    node.manage("backup", "--output", str(archive))
    filler = fill(small_disk)
    full = small_disk / "backup.tar.gz"
    for room in (0, 100_000, 600_000):  # for nothing, for a part of the database, for nearly all
        with filler.open("r+b") as file:
            file.truncate(filler.stat().st_size - room)
        status, said = fails(node, "backup", "--output", str(full))
        assert (status, "No backup was made" in said) == (2, True), said
        assert [path.name for path in small_disk.iterdir()] == ["filler"]
    other = Node(small_disk / "node", SECRET_KEY="given")
    status, said = fails(other, "restore", str(archive))
    assert status == 2, said
    assert not (small_disk / "node" / "node.sqlite3").exists()
    assert before == rows(node.data_dir / "node.sqlite3")
    filler.unlink()
    node.manage("backup", "--output", str(full))
