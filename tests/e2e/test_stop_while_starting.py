"""A worker is told to stop while it or another one starts: nothing is lost. Real workers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import waiting
from tests.e2e.pair import Pair, frozen, running
from tests.node import START_SECONDS, Node

pytestmark = [pytest.mark.long]


@pytest.fixture
def pair(tmp_path: Path, template: Path) -> Iterator[Pair]:
    """Two workers with leases that a freeze does not outlast."""
    with running(tmp_path, template, WORKER_TIMEOUT=20) as both:
        yield both


def registered(node: Node) -> set[int]:
    """The processes of the workers that have rows."""
    return {pid for (pid,) in node.rows("SELECT pid FROM msgnode_worker")}


@pytest.mark.parametrize("turn", [signal.SIGTERM, signal.SIGINT])
def test_w7_told_to_stop_while_it_starts_a_worker_takes_leave(
    pair: Pair, turn: signal.Signals
) -> None:
    pair.other.terminate()
    assert pair.other.status() == 0
    with frozen(pair.one):
        pair.other.begin()
        waiting.until(lambda: pair.other.pid in registered(pair.one), START_SECONDS)
        os.kill(pair.other.pid, turn)
        os.kill(pair.other.pid, turn)
        assert pair.other.status() == 0
        assert registered(pair.one) == {pair.one.pid}
    pair.other.start()  # by then the other has looked at who is there
    assert not pair.one.rows("SELECT text FROM msgnode_alarm WHERE kind = 'unclean-stop'")


@pytest.mark.parametrize("ends", [signal.SIGSTOP, signal.SIGKILL])
async def test_w7_the_sessions_of_a_worker_that_stops_beside_one_that_hangs_are_there_afterwards(
    pair: Pair, ends: signal.Signals
) -> None:
    client = await pair.come(pair.one)
    (held,) = await client.allocate()
    pair.other.terminate()
    assert await asyncio.to_thread(pair.other.status) == 0
    pair.other.begin()
    is_there = lambda: pair.other.pid in registered(pair.one)  # noqa: E731
    await asyncio.to_thread(waiting.until, is_there, START_SECONDS)
    os.kill(pair.other.pid, ends)
    pair.one.terminate()
    assert await asyncio.to_thread(pair.one.status) == 0
    if ends is signal.SIGSTOP:
        os.kill(pair.other.pid, signal.SIGCONT)
        is_ready = lambda: pair.other.get("/health/ready") == 200  # noqa: E731
        await asyncio.to_thread(waiting.until, is_ready, START_SECONDS)
    else:
        await asyncio.to_thread(pair.other.start)
    back = await pair.back(pair.other, client)
    talker = await pair.come(pair.other)
    await talker.send("create", held, {"value": 1})
    assert (await back.expect(type="create"))["to"] == held
    await pair.leave()
