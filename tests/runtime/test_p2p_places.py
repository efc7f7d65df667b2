"""Direct connections between two workers of one node, and through a relay alone."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from tests.e2e.pair import OwnRedis
from tests.node import Node
from tests.qos.coturn import running as coturn_running
from tests.redis.servers import running as redis_running

from .p2p_relay import relay
from .p2p_talkers import (  # noqa: F401 (a fixture for all)
    SECONDS,
    connect,
    numbered,
    on_loopback,
    talkers,
)

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("p2p")]

PATIENT = P2PTimers(answer=30.0, set_up=60.0, fence=30.0, resume=30.0, ping=20.0, dead=60.0)
P2P = P2PSettings(timers=PATIENT)


@pytest.fixture
def workers(tmp_path: Path, template: Path) -> Iterator[tuple[Node, Node]]:
    shutil.copy(template, tmp_path / "node.sqlite3")
    redis = OwnRedis(tmp_path)
    redis.start()
    both = [Node(tmp_path, REDIS_URL=redis.url, WORKERS=2, WORKER_TIMEOUT=15) for _ in range(2)]
    try:
        with ThreadPoolExecutor() as starting:
            list(starting.map(Node.start, both))
        yield both[0], both[1]
    finally:
        for worker in both:
            worker.kill()
        redis.stop()


async def test_case_p30_numbers_keep_their_order_over_two_workers(
    workers: tuple[Node, Node],
) -> None:
    one, two = workers
    async with talkers(one, P2P, P2P, other=two) as (alice, bob):
        await numbered(alice, bob, lambda: connect(alice, bob))
        assert alice.by_channel and bob.by_channel
        peer = alice.p2p.known[bob.runtime.url]
        alice.numbers.clear()
        bob.numbers.clear()

        async def end() -> None:
            await bob.until(lambda: len(bob.numbers) > 50)
            peer.bye("idle")
            await alice.until(lambda: alice.way_to(bob) is Way.NODE)

        await numbered(alice, bob, end)


async def test_case_p22_over_a_relay_alone_which_is_reserved_and_given_back(
    start_node: Callable[..., Node], tmp_path: Path
) -> None:
    with redis_running(tmp_path) as store, coturn_running(tmp_path, store.port) as turn:
        node = start_node(QOS_BROKER="embedded", QOS_TURN_REDIS_URL=store.url, QOS_POLL_SECONDS=1)
        node.manage("shell", "-c", turn.row())
        chosen = P2PSettings(reserve=True, relay_only=True, timers=PATIENT)
        async with talkers(node, chosen, chosen) as (alice, bob):
            await connect(alice, bob)
            assert "/p2prequester/" in (await alice.ask(bob, 1))["cameBy"]
            both = (alice.runtime.qos, bob.runtime.qos)
            assert [len(await each.reservations()) for each in both] == [1, 1]
            alice.p2p.known[bob.runtime.url].bye("idle")
            async with asyncio.timeout(SECONDS):
                while any([await each.reservations() for each in both]):  # noqa: ASYNC110 (untold)
                    await asyncio.sleep(0.1)


async def test_case_p22_without_a_way_the_node_carries_everything(
    node: Node, tmp_path: Path
) -> None:
    with relay(tmp_path) as server:  # relays to no peer on the loopback
        brief = P2PTimers(answer=30.0, set_up=8.0)
        chosen = P2PSettings(ice_servers=(server,), relay_only=True, timers=brief)
        async with talkers(node, chosen, chosen) as (alice, bob):
            asked = [(await alice.ask(bob, n, p2p=True))["value"] for n in range(10)]
            assert asked == list(range(10))
            await alice.until(lambda: (bob.runtime.url, "failed") in alice.states)
            assert (await alice.ask(bob, 11, p2p=True))["value"] == 11
            assert bob.by_channel == 0
