"""From the version before to this one, worker by worker, under 200 messages a second.

The version before is taken from the repository's history and runs with the packages of this one. A
clone without it (a shallow one) cannot run this, and says so.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.client import Client, Frame, runtime
from tests.node import ROOT, Node, eventually
from tests.production import database, settings

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# The oldest whose workers speak the protocol of this one's.
PREVIOUS = "8723a2c20110fec8997ce9169ff49797878efb31"
PAIRS = 10
RATE = 20  # requests a second of each pair: 200 of all, and as many answers
QUIET = 20.0  # seconds in which what is under way has to come to an end
BACK = 60.0  # seconds in which a runtime has to be back


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


class Runtime:
    """Asks its partner, answers what it is asked, and comes back when it is sent away.

    Every request ends in a way that somebody knows of: `answered` by the partner, `refused` by the
    node, `unsure` because the asker's own socket ended before. What is none of these is `open`; it
    is accounted for only if the asker or its partner was told of a gap after it was sent.
    """

    def __init__(self, workers: list[Node]) -> None:
        self.workers = workers
        self.url = runtime()
        self.partner: Runtime
        self.token = ""
        self.answered: set[int] = set()
        self.refused: dict[int, Frame] = {}
        self.unsure: set[int] = set()
        self.open: dict[int, float] = {}
        self.gap_at = 0.0
        self.closes: list[int] = []
        self.lost_sessions = 0
        self._ids = itertools.count(1)
        self._client: Client | None = None

    async def live(self, number: int) -> None:
        """Connect, and again whenever the socket ends, to whichever worker takes it."""
        choice = itertools.cycle(range(len(self.workers)))
        for _ in range(number):
            next(choice)
        while True:
            try:
                client = await self._arrive(self.workers[next(choice)])
            except (OSError, InvalidStatus, ConnectionClosed, TimeoutError, AssertionError):
                await asyncio.sleep(0.05)
                continue
            self._client = client
            with suppress(ConnectionClosed, TimeoutError):
                while True:
                    await self._take(json.loads(await client.socket.recv()), client)
            self._client = None
            self.closes.append(client.socket.close_code or 0)
            self.unsure |= self.open.keys()  # the asker knows that it does not know
            self.open.clear()

    async def _arrive(self, worker: Node) -> Client:
        client = await worker.ws().connect()
        if not self.token:
            await client.open(self.url)
            self.token = client.token
            return client
        answer = await client.reopen(self.url, self.token)
        assert answer["body"]["code"] == 200, answer
        if "runtimeToken" in answer["body"]:
            self.lost_sessions += 1
            self.token = answer["body"]["runtimeToken"]
        for frame in client.inbox:
            await self._take(frame, client)
        return client

    async def _take(self, frame: Frame, client: Client) -> None:
        body = frame.get("body") or {}
        if frame["type"] == "response":
            self.open.pop(frame["id"], None)
            self.unsure.discard(frame["id"])
            if body.get("code") == 200:
                self.answered.add(frame["id"])
            else:
                self.refused[frame["id"]] = body
        elif frame["type"] == "execute":
            await client.send(
                "response", frame["from"], {"code": 200}, id=frame["id"], sender=self.url
            )
        elif body.get("value") == "gap":
            self.gap_at = asyncio.get_running_loop().time()

    async def ask(self) -> None:
        """One request to the partner, if there is a socket just now."""
        client = self._client
        if client is None:
            return
        number = next(self._ids)
        self.open[number] = asyncio.get_running_loop().time()
        with suppress(ConnectionClosed):
            await client.send(
                "execute", self.partner.url, {"value": number}, id=number, sender=self.url
            )

    @property
    def is_back(self) -> bool:
        return self._client is not None

    def silently_lost(self) -> list[int]:
        """Requests of which nobody knows that they are lost."""
        told = max(self.gap_at, self.partner.gap_at)
        return [number for number, sent in self.open.items() if sent > told]


async def traffic(askers: list[Runtime]) -> None:
    """RATE requests a second of each, as the clock says, however long a turn takes."""
    loop = asyncio.get_running_loop()
    began, asked = loop.time(), 0
    while True:
        due = int((loop.time() - began) * RATE)
        while asked < due:
            asked += 1
            for asker in askers:
                await asker.ask()
        await asyncio.sleep(0.5 / RATE)


@pytest.fixture
def common(postgres_url: str, redis_url: str) -> Iterator[dict[str, str]]:
    with database(postgres_url) as url:
        yield {**settings(url, redis_url), "DRAIN_SECONDS": "5"}


async def until_back(runtimes: list[Runtime]) -> None:
    async with asyncio.timeout(BACK):
        while not all(each.is_back for each in runtimes):
            await eventually()


async def test_workers_are_replaced_one_by_one_and_nothing_is_lost_in_silence(
    tmp_path: Path, previous: Path, common: dict[str, str]
) -> None:
    place = tmp_path / "data"
    workers = [Node(place, **common), Node(place, **common)]
    for worker in workers:
        worker.root = previous
    workers[0].migrate()
    runtimes = [Runtime(workers) for _ in range(2 * PAIRS)]
    askers = runtimes[:PAIRS]
    for one, other in zip(askers, runtimes[PAIRS:], strict=True):
        one.partner, other.partner = other, one
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
            limit = asyncio.get_running_loop().time() + QUIET
            while any(each.open for each in askers) and asyncio.get_running_loop().time() < limit:
                await eventually()
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
