"""From a version before to this one: worker by worker under 200 messages a second, and clients.

Workers where both speak one protocol; else the new ones wait for the end of the old ones. The
versions before are taken from the repository's history and run with the packages of this one. A
clone without them (a shallow one) cannot run this, and says so.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.databases import database
from tests.e2e.asking import Runtime, pairs, traffic, until_back, until_quiet
from tests.node import ROOT, Node, eventually
from tests.production import settings
from tests.stubs.runtimes import node_js

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# The last release, whose workers speak the protocol of this one's; while none has a tag, 1.0.0 as
# it was on 2026-11-29.
RELEASED = "c8ce6aa182003400742db76b63bd1ce82f103242"
# The last whose workers speak the protocol before.
OTHER_PROTOCOL = "b803ca869728ca84fa730b325691c245ee64d83e"
PAIRS = 10
IN_PYTHON = """
import asyncio
from hyperty_runtime import Runtime, Settings

async def main():
    settings = Settings("localhost", catalogues={"localhost": "http://127.0.0.1:PORT"})
    async with Runtime(settings) as one, Runtime(settings) as other:
        await one.log_in()
        await other.log_in()
        asked = await one.hyperty("asked", handlers=lambda value, message: f"{value}?")
        asks = await other.hyperty("asks")
        print(await asks.request(asked.url, "there"))

asyncio.run(main())
"""
IN_JAVASCRIPT = """
import { Runtime } from "PACKAGE";
const settings = { domain: "localhost", catalogues: { localhost: "http://127.0.0.1:PORT" } };
const [one, other] = [new Runtime(settings), new Runtime(settings)];
await one.logIn();
await other.logIn();
const asked = await one.hyperty("asked", { handlers: (value) => `${value}?` });
const asks = await other.hyperty("asks");
console.log(await asks.request(asked.url, "there"));
await Promise.all([one, other].map((each) => each.close()));
"""
NAMED = r'msgnode_alarms\{kind="worker-protocol"\} [1-9]'


def git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, timeout=60, check=False)


def checkout(version: str, place: Path) -> Path:
    """The files of a version before."""
    archive = git("archive", "--format=tar", version)
    if archive.returncode != 0:
        is_shallow = git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        has_history = git("rev-parse", "--git-dir").returncode == 0 and not is_shallow
        if os.environ.get("CI") and has_history:
            pytest.fail(f"the history has no {version}: {archive.stderr.decode()}")
        pytest.skip(f"the history of this clone does not reach back to {version}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(place, filter="data")
    return place


@pytest.fixture
def common(postgres_url: str, redis_url: str) -> Iterator[dict[str, str]]:
    with database(postgres_url) as url:
        yield {**settings(url, redis_url), "DRAIN_SECONDS": "5"}


def account(runtimes: list[Runtime]) -> dict[str, Any]:
    """What became of all that was asked; nothing is lost in silence, and no session."""
    askers = runtimes[: len(runtimes) // 2]
    silent = {each.url: each.silently_lost() for each in askers if each.silently_lost()}
    assert silent == {}
    answered = sum(len(each.answered) for each in askers)
    told = {
        "asked": answered + sum(len(e.refused) + len(e.unsure) + len(e.open) for e in askers),
        "answered": answered,
        "refused": sum(len(each.refused) for each in askers),
        "unsure": sum(len(each.unsure) for each in askers),
        "gaps": sum(bool(each.gaps) for each in runtimes),
        "closes": sorted({code for each in runtimes for code in each.closes}),
    }
    print(told)
    assert sum(each.lost_sessions for each in runtimes) == 0, told
    assert told["closes"] == [3001], told
    return told


class Packages:
    """The client packages of a version, each of which has two runtimes that talk over a node."""

    def __init__(self, root: Path, place: Path) -> None:
        self.place = place
        python = (sys.executable, "-m")
        subprocess.run([*python, "msgnode.stubs.wheel", place], cwd=root, check=True, timeout=60)
        (wheel,) = place.glob("*.whl")
        install = (*python, "pip", "install", "--quiet", "--no-deps", "--no-index", "--target")
        subprocess.run([*install, place, wheel], check=True, timeout=60)
        self._javascript = root / "msgnode" / "runtime" / "js" / "src" / "node.js"

    def talk(self, node: Node) -> None:
        """Have the runtimes of both languages talk."""
        for command, text in (
            ([sys.executable], IN_PYTHON),
            (node_js(), IN_JAVASCRIPT.replace("PACKAGE", str(self._javascript))),
        ):
            program = self.place / ("program.py" if text is IN_PYTHON else "program.mjs")
            program.write_text(text.replace("PORT", str(node.port)), encoding="utf-8")
            done = subprocess.run(
                [*command, program], cwd=self.place, capture_output=True, text=True, timeout=60,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.place)}, check=False,
            )  # fmt: skip
            assert done.stdout == "there?\n", done.stdout + done.stderr + node.log()[-2000:]


async def test_clients_of_both_versions_are_served_before_and_after_and_the_database_comes_along(
    tmp_path: Path,
) -> None:
    """With an interruption, as the page of operations says."""
    previous = checkout(RELEASED, tmp_path / "previous")
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    theirs, ours = Packages(previous, tmp_path / "theirs"), Packages(ROOT, tmp_path / "ours")
    node, archive = Node(tmp_path / "data"), tmp_path / "archive.tar.gz"
    node.root = previous
    node.data_dir.mkdir()
    node.migrate()
    try:
        await asyncio.to_thread(node.start)
        for packages in (theirs, ours):
            await asyncio.to_thread(packages.talk, node)
        async with node.ws() as client:
            await client.open()
            (held,) = await client.allocate()
            await asyncio.to_thread(node.manage, "backup", "--output", str(archive))
            node.terminate()
            assert await asyncio.to_thread(node.status) == 0, node.log()[-3000:]
        node.root = ROOT
        await asyncio.to_thread(node.migrate)
        await asyncio.to_thread(node.start)
        async with node.ws() as again, node.ws() as asks:
            await again.resume(client)
            await asks.open()
            await asks.send("execute", held, {"value": 1})
            assert (await again.expect(type="execute", to=held))["body"]["value"] == 1
        for packages in (theirs, ours):
            await asyncio.to_thread(packages.talk, node)
    finally:
        node.kill()
    restored = Node(tmp_path / "restored")
    restored.data_dir.mkdir()
    restored.manage("restore", str(archive))
    restored.migrate()
    assert restored.rows("SELECT 1 FROM msgnode_allocation WHERE address = ?", held) == [(1,)]


async def test_workers_are_replaced_one_by_one_and_nothing_is_lost_in_silence(
    tmp_path: Path, common: dict[str, str]
) -> None:
    place, previous = tmp_path / "data", checkout(RELEASED, tmp_path / "previous")
    workers = [Node(place, **common), Node(place, **common)]
    for worker in workers:
        worker.root = previous
    workers[0].migrate()
    runtimes = pairs(PAIRS, workers)
    askers = runtimes[:PAIRS]
    try:
        for worker in workers:
            await asyncio.to_thread(worker.start)
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(each.live(n)) for n, each in enumerate(runtimes)]
            await until_back(runtimes)
            asking = group.create_task(traffic(askers))
            await asyncio.sleep(2)

            # The tables become those of this version while both workers are of the one before.
            for worker in workers:
                worker.root = ROOT
            await asyncio.to_thread(workers[0].migrate)
            for worker in workers:
                worker.terminate()
                assert await asyncio.to_thread(worker.status) == 0, worker.log()[-3000:]
                await until_back(runtimes)
                await asyncio.to_thread(worker.start)
                await asyncio.sleep(2)
            asking.cancel()
            await until_quiet(askers)
            for job in jobs:
                job.cancel()

        told = account(runtimes)
        assert told["answered"] > 0.8 * told["asked"], told
        # Every worker is of this version now, and none had to be named for its protocol.
        numbers = workers[0].text("/metrics")
        assert 'msgnode_alarms{kind="worker-protocol"} 0.0' in numbers
        assert numbers.count("msgnode_worker_answered{") == 2
    finally:
        for worker in workers:
            worker.kill()


async def test_workers_of_the_protocol_before_are_named_and_the_new_one_takes_what_they_leave(
    tmp_path: Path, common: dict[str, str]
) -> None:
    place, previous = tmp_path / "data", checkout(OTHER_PROTOCOL, tmp_path / "previous")
    old = [Node(place, **common), Node(place, **common)]
    new = Node(place, **common)
    for worker in old:
        worker.root = previous
    old[0].migrate()
    runtimes = pairs(PAIRS, [*old, new])
    askers = runtimes[:PAIRS]
    try:
        for worker in old:
            await asyncio.to_thread(worker.start)
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(each.live(n)) for n, each in enumerate(runtimes)]
            await until_back(runtimes)
            asking = group.create_task(traffic(askers))
            await asyncio.to_thread(new.migrate)
            coming = asyncio.create_task(asyncio.to_thread(new.start))
            async with asyncio.timeout(60):
                while not re.search(NAMED, old[0].text("/metrics")):
                    await eventually()
            assert not coming.done()
            for worker in old:
                assert new.get("/health/ready") != 200
                worker.terminate()
                assert await asyncio.to_thread(worker.status) == 0, worker.log()[-3000:]
            await asyncio.wait_for(coming, 60)
            await until_back(runtimes)
            before = sum(len(each.answered) for each in askers)
            async with asyncio.timeout(60):
                while sum(len(each.answered) for each in askers) < before + 10 * PAIRS:
                    await eventually()
            asking.cancel()
            await until_quiet(askers)
            for job in jobs:
                job.cancel()
        account(runtimes)
    finally:
        for worker in (*old, new):
            worker.kill()
