"""What was acknowledged is there after a power cut: the disk has what it was told to keep, no more.

The node's directory is an ext4 of the test's own, on a loop device whose commits are ten minutes
apart. What its backing file holds at some moment is what a power cut at that moment would leave.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import ALLOCATION, Client, code
from tests.node import Node

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("power cut")]

CUTS = 3
BATCH = 20


class Disk:
    """A file system that can lose what was not yet written to its medium."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self._medium = folder / "medium"
        self.root.mkdir()
        with self._medium.open("wb") as file:
            file.truncate(512 << 20)
        run("mkfs.ext4", "-q", str(self._medium))
        self._mount()

    def cut(self) -> None:
        """Put the files to what a power cut just now would leave; nobody may have one open."""
        left = self._medium.with_name("left")
        run("cp", "--sparse=always", str(self._medium), str(left))
        self.close()
        left.replace(self._medium)
        self._mount()

    def close(self) -> None:
        run("umount", str(self.root))

    def _mount(self) -> None:
        run("mount", "-o", "loop,commit=600,noauto_da_alloc", str(self._medium), str(self.root))


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        made = Disk(tmp_path)
    except (OSError, AssertionError) as fault:
        pytest.skip(f"A file system on a loop device cannot be mounted here: {fault}")
    yield made
    made.close()


@pytest.fixture
def node(disk: Disk, template: Path) -> Iterator[Node]:
    """A node that is started for the first time; it makes its own key."""
    node = Node(disk.root / "data", SECRET_KEY="")
    node.data_dir.mkdir()
    shutil.copy(template, node.data_dir / "node.sqlite3")
    run("sync", "--file-system", str(disk.root))
    yield node
    node.kill()


def after_a_cut(node: Node, disk: Disk) -> Node:
    node.kill()
    disk.cut()
    node.start()
    assert node.rows("PRAGMA integrity_check") == [("ok",)]
    return node


async def test_the_key_and_what_it_has_encrypted_survive_a_cut_at_the_first_start(
    node: Node, disk: Disk
) -> None:
    node.start()
    node.manage("provider_key", "--rotate")
    key = (node.data_dir / "secret_key").read_text()
    async with node.ws() as client:
        await client.open()
    after_a_cut(node, disk)
    assert (node.data_dir / "secret_key").read_text() == key
    secrets = json.loads(node.manage("secret_key", "--json"))["secrets"]
    assert sum(each["number"] for each in secrets) > 0
    assert not any(each["unreadable"] for each in secrets)
    async with node.ws() as again:
        await again.resume(client)


async def test_what_was_answered_while_others_still_asked_is_there_after_each_cut(
    node: Node, disk: Disk
) -> None:
    node.start()
    listener = Client(f"ws://127.0.0.1:{node.port}/ws")
    await listener.connect()
    await listener.open()
    held: set[str] = set()
    gone: set[str] = set()
    for _ in range(CUTS):
        async with node.ws() as writer:
            await writer.open()
            (resource,) = await writer.allocate("comm")
            assert code(await listener.subscribe(f"{resource}/changes")) == 200
            for _ in range(BATCH):
                first, second = await listener.allocate(number=2)
                assert code(await listener.ask("delete", ALLOCATION, {"resource": first})) == 200
                held.add(second)
                gone.add(first)
            for _ in range(BATCH):  # still under way
                await listener.send("create", ALLOCATION, {"scheme": "comm", "value": {}})
            after_a_cut(node, disk)
        before, listener = listener, Client(listener.url)
        await listener.connect()
        await listener.resume(before)
        async with node.ws() as again:
            await again.resume(writer)
            await again.send("update", f"{resource}/changes", {"value": 1}, sender=resource)
            await listener.expect(type="update", to=f"{resource}/changes")
            for address in held:
                await again.send("execute", address, {})
                await listener.expect(type="execute", to=address)
            answers = [await again.ask("execute", address, {}) for address in gone]
            assert {code(answer) for answer in answers} == {404}
    await listener.hang_up()


async def test_a_backup_that_was_reported_is_whole_after_a_cut(node: Node, disk: Disk) -> None:
    node.start()
    archive = disk.root / "backup.tar.gz"
    await asyncio.to_thread(node.manage, "backup", "--output", str(archive))
    after_a_cut(node, disk)
    assert "could be" in node.manage("restore", str(archive), "--check")
