"""From a version before to this one, under 200 messages a second.

Worker by worker where both speak one protocol; else the new ones wait for the end of the old ones.
The versions before are taken from the repository's history and run with the packages of this one. A
clone without them (a shallow one) cannot run this, and says so.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.databases import database
from tests.e2e.asking import Runtime, pairs, traffic, until_back, until_quiet
from tests.node import ROOT, Node, eventually
from tests.production import settings

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# A version before whose workers speak the protocol of this one's.
PREVIOUS = "1779512048ef30c91fb98012eddbc97d82d8b7d6"
# The last whose workers speak the protocol before.
OTHER_PROTOCOL = "b803ca869728ca84fa730b325691c245ee64d83e"
PAIRS = 10
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


async def test_workers_are_replaced_one_by_one_and_nothing_is_lost_in_silence(
    tmp_path: Path, common: dict[str, str]
) -> None:
    place, previous = tmp_path / "data", checkout(PREVIOUS, tmp_path / "previous")
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
