"""Two workers of one node, joined by a real Redis: messages between them, and what becomes of the
sessions when one of them, or Redis, goes away."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests import waiting
from tests.client import Client, address, code
from tests.e2e.pair import OwnRedis, Pair, running
from tests.node import Node, eventually

pytestmark = pytest.mark.long


READS = 30


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Pair]:
    """Workers that outlive a test: of all tests that end neither."""
    with running(tmp_path_factory.mktemp("workers"), template) as both:
        yield both
        assert both.one.is_running(), both.one.log()
        assert both.other.is_running(), both.other.log()


@pytest.fixture
async def pair(workers: Pair) -> AsyncIterator[Pair]:
    yield workers
    await workers.leave()


@pytest.fixture
async def own_pair(tmp_path: Path, template: Path) -> AsyncIterator[Pair]:
    """Workers of a test's own, which may end them and count all that they do."""
    with running(tmp_path, template, CLIENT_REQUESTS_PER_MINUTE=READS) as both:
        yield both
        await both.leave()


async def flow(sender: Client, to: str, number: int, first: int = 0) -> None:
    for each in range(first, first + number):
        await sender.send("create", to, {"value": each})


async def received(client: Client, number: int) -> list[int]:
    return [(await client.expect(type="create"))["body"]["value"] for _ in range(number)]


async def test_an_address_is_claimed_by_one_session_of_all_workers(pair: Pair) -> None:
    here, there = await pair.come(pair.one), await pair.come(pair.other)
    for _ in range(10):
        wanted = address()
        answers = await asyncio.gather(here.subscribe(wanted), there.subscribe(wanted))
        assert sorted(map(code, answers)) == [200, 403]


async def test_w6_a_session_is_resumed_at_the_other_worker_with_all_that_waited(pair: Pair) -> None:
    away, talker = await pair.come(pair.one), await pair.come(pair.other)
    (held,) = await away.allocate()
    seen = address("comm")
    await away.subscribe(f"{seen}/changes")
    await away.hang_up()
    await flow(talker, held, 100)
    flowing = asyncio.create_task(flow(talker, held, 300, first=100))
    back = await pair.back(pair.other, away)
    await flowing
    await flow(talker, held, 100, first=400)
    assert await received(back, 500) == list(range(500))
    await talker.send("update", f"{seen}/changes", sender=seen)
    assert (await back.expect(type="update"))["to"] == f"{seen}/changes"
    at_first = await pair.come(pair.one)
    await at_first.send("create", held, {"value": "still"})
    assert await received(back, 1) == ["still"]


async def test_w7_told_to_stop_a_worker_sends_its_sessions_to_the_other_and_nothing_is_lost(
    own_pair: Pair,
) -> None:
    talker = await own_pair.come(own_pair.other)
    clients = [await own_pair.come(own_pair.one) for _ in range(10)]
    held = [(await client.allocate())[0] for client in clients]
    stay_away = clients.pop()
    enough = asyncio.Event()
    sending = asyncio.create_task(_send_until(enough, talker, held))
    own_pair.one.terminate()
    codes = await asyncio.gather(*(_until_closed(client) for client in [*clients, stay_away]))
    assert {each for each, _ in codes} == {3001}
    returned = await asyncio.gather(*(own_pair.back(own_pair.other, each) for each in clients))
    assert await asyncio.to_thread(own_pair.one.status) == 0
    late = await own_pair.back(own_pair.other, stay_away)
    enough.set()
    sent = await sending
    for client, (_, before) in zip([*returned, late], codes, strict=True):
        arrived = before + [
            each["body"]["value"]
            for each in await client.received_from(talker)
            if each["type"] == "create"
        ]
        assert arrived == list(range(sent))
        assert not any(each["type"] == "update" for each in client.inbox)


async def _send_until(enough: asyncio.Event, talker: Client, held: list[str]) -> int:
    """Send each address the numbers from 0 on, until it is enough and a few more; how many."""
    value = 0
    while not enough.is_set() or value < 20:
        for each in held:
            await talker.send("create", each, {"value": value})
        value += 1
        await asyncio.sleep(0.01)  # the pace of the traffic
    return value


async def _until_closed(client: Client) -> tuple[int, list[int]]:
    """The code a socket is closed with, and the values that came before."""
    values: list[int] = []
    try:
        while True:
            values.append((await client.receive())["body"]["value"])
    except ConnectionClosed:
        return client.socket.close_code or 0, values


QUOTA = 30
QUOTA_RULE = {
    "effect": "permit",
    "condition": {"msgTo": {"like": "*/limited"}},
    "obligations": {"rateLimit": {"rate.srcAddress.hour": QUOTA}},
}


async def test_a_quota_and_a_limit_of_requests_hold_over_both_workers(own_pair: Pair) -> None:
    document = [{"id": "S", "policies": [{"id": "P", "rules": [QUOTA_RULE]}]}]
    (own_pair.one.data_dir / "quota.json").write_text(json.dumps(document))
    words = ("policy_import", str(own_pair.one.data_dir / "quota.json"), "--mode", "enforce")
    await asyncio.to_thread(own_pair.one.manage, *words, "--publish")
    while own_pair.one.log().count("Policies of version 1 are in force") < 2:
        await eventually()
    here, there = await own_pair.come(own_pair.one), await own_pair.come(own_pair.other)
    nobody = f"{here.runtime_url}x/limited"
    assert {code(await here.ask("create", nobody)) for _ in range(QUOTA - 10)} == {404}
    # What each allows before it has heard of the other is more by that; alone it were all.
    assert await _until(429, lambda: _code_of(there, nobody)) < QUOTA
    assert await _until(429, lambda: _code_of(here, nobody)) < 10
    own_pair.one.terminate()
    assert await asyncio.to_thread(own_pair.one.status) == 0
    await asyncio.to_thread(own_pair.one.start)
    again = await own_pair.come(own_pair.one)
    assert await _until(429, lambda: _code_of(again, nobody)) < QUOTA  # it was told on joining
    live = "/domain-registry/live"
    assert {own_pair.one.get(live) for _ in range(READS - 10)} == {200}
    assert await _until(429, lambda: asyncio.to_thread(own_pair.other.get, live)) < 20


async def test_whichever_worker_is_asked_tells_the_numbers_of_both(own_pair: Pair) -> None:
    here, _ = await own_pair.come(own_pair.one), await own_pair.come(own_pair.other)
    assert await _code_of(here, address()) == 404
    for worker in (own_pair.one, own_pair.other):
        text = await asyncio.to_thread(waiting.until, lambda at=worker: _numbers_of_both(at), 30)
        told = re.findall(r'^msgnode_sessions{state="open",worker="(\S+)"} 1.0$', text, re.M)
        assert {name.rpartition(":")[2] for name in told} == {
            str(own_pair.one.pid), str(own_pair.other.pid)
        }  # fmt: skip
        assert len(re.findall(r"^# TYPE msgnode_messages_total counter$", text, re.M)) == 1
        assert len(re.findall(r"^msgnode_delivery_seconds_bucket.*\+Inf", text, re.M)) == 2
        assert re.search(r'^msgnode_alarms\{kind="gap"\} 0.0$', text, re.M)
    alone = await asyncio.to_thread(own_pair.one.text, "/metrics?worker=this")
    assert len(re.findall(r"^msgnode_sockets{", alone, re.M)) == 1


def _numbers_of_both(worker: Node) -> str:
    """What a worker tells; nothing while the other was too late to be part of it."""
    text = worker.text("/metrics")
    answered = re.findall(r"^msgnode_worker_answered\S* 1.0$", text, re.M)
    return text if len(answered) == 2 else ""


async def _code_of(client: Client, to: str) -> int:
    """The answer, once the other worker has said what it knows (503: it was too late)."""
    async with asyncio.timeout(30):
        while (answered := code(await client.ask("create", to))) == 503:
            await eventually()
    return answered


async def _until(wanted: int, ask: Callable[[], Awaitable[int]]) -> int:
    """How many other answers come before the one wanted, at a pace."""
    async with asyncio.timeout(30):
        others = 0
        while await ask() != wanted:
            others += 1
            await eventually()
        return others


@pytest.fixture
async def over_own_redis(tmp_path: Path, template: Path) -> AsyncIterator[tuple[Pair, OwnRedis]]:
    """Two workers, whose time-out is longer than Redis is away, and their Redis."""
    shutil.copy(template, tmp_path / "node.sqlite3")
    redis = OwnRedis(tmp_path)
    redis.start()
    both = Pair(tmp_path, REDIS_URL=redis.url, WORKER_TIMEOUT=20)
    try:
        async with both.running():
            yield both, redis
    finally:
        redis.stop()


async def test_w11_redis_restarted_under_traffic_costs_no_message(
    over_own_redis: tuple[Pair, OwnRedis],
) -> None:
    pair, redis = over_own_redis
    here, there = await pair.come(pair.one), await pair.come(pair.other)
    (held,) = await there.allocate()
    flowing = asyncio.create_task(_flow_at_a_pace(here, held, 300))
    assert await received(there, 20) == list(range(20))
    os.kill(redis.pid, signal.SIGSTOP)
    for _ in range(3):
        await eventually()  # some of the traffic is on its way to it when it ends
    redis.stop()
    assert code(await here.ask("create", address())) == 503  # nobody can be asked
    await here.send("create", here.runtime_url, {"value": "goes on"})
    assert (await here.expect(type="create"))["body"]["value"] == "goes on"
    redis.start()
    assert await received(there, 280) == list(range(20, 300))
    await flowing
    await _until(404, lambda: _code_of(here, address()))  # all have entered again what they hold
    assert (await here.allocate()) != []
    metrics = pair.one.text("/metrics") + pair.other.text("/metrics")
    assert re.search(r"^msgnode_link_resent_total\S* [1-9]", metrics, re.MULTILINE), metrics


async def _flow_at_a_pace(sender: Client, to: str, number: int) -> None:
    for each in range(number):
        await sender.send("create", to, {"value": each})
        await asyncio.sleep(0.01)  # the pace of the traffic
