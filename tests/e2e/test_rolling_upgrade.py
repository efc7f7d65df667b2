"""From the version before to this one, worker by worker, under 200 messages a second.

The version before is taken from the repository's history and runs with the packages of this one. A
clone without it (a shallow one) cannot run this, and says so.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import pairs, traffic, until_back, until_quiet
from tests.node import ROOT, Node
from tests.production import database, settings

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# The oldest whose workers speak the protocol of this one's.
PREVIOUS = "8723a2c20110fec8997ce9169ff49797878efb31"
PAIRS = 10


def git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, timeout=60, check=False)


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """A checkout of the version before."""
    archive = git("archive", "--format=tar", PREVIOUS)
    if archive.returncode != 0:
        is_shallow = git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        has_history = git("rev-parse", "--git-dir").returncode == 0 and not is_shallow
        if os.environ.get("CI") and has_history:
            pytest.fail(f"the history has no {PREVIOUS}: {archive.stderr.decode()}")
        pytest.skip(f"the history of this clone does not reach back to {PREVIOUS}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(tmp_path / "previous", filter="data")
    return tmp_path / "previous"


@pytest.fixture
def common(postgres_url: str, redis_url: str) -> Iterator[dict[str, str]]:
    with database(postgres_url) as url:
        yield {**settings(url, redis_url), "DRAIN_SECONDS": "5"}


async def test_workers_are_replaced_one_by_one_and_nothing_is_lost_in_silence(
    tmp_path: Path, previous: Path, common: dict[str, str]
) -> None:
    place = tmp_path / "data"
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

        silent = {each.url: each.silently_lost() for each in askers if each.silently_lost()}
        assert silent == {}
        answered = sum(len(each.answered) for each in askers)
        asked = answered + sum(len(e.refused) + len(e.unsure) + len(e.open) for e in askers)
        told = {
            "asked": asked, "answered": answered,
            "refused": sum(len(each.refused) for each in askers),
            "unsure": sum(len(each.unsure) for each in askers),
            "gaps": sum(each.gap_at > 0 for each in runtimes),
            "closes": sorted({code for each in runtimes for code in each.closes}),
        }  # fmt: skip
        print(told)
        assert sum(each.lost_sessions for each in runtimes) == 0, told
        assert answered > 0.8 * asked, told
        assert {code for each in runtimes for code in each.closes} == {3001}, told
        # Every worker is of this version now, and none had to be named for its protocol.
        numbers = workers[0].text("/metrics")
        assert 'msgnode_alarms{kind="worker-protocol"} 0.0' in numbers
        assert numbers.count("msgnode_worker_answered{") == 2
    finally:
        for worker in workers:
            worker.kill()
