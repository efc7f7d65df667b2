"""What must hold between two workers, in the short run: one pair over one Redis for all tests.

The first hears Redis without delay, the other over a link that a test can slow down. What only
kills, restarts or crowds can show is in test_workers.py.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from tests.client import ALLOCATION, Client, Frame, address, code
from tests.e2e.pair import OwnRedis, frozen
from tests.node import Node, eventually
from tests.slow_link import SlowLink, slow_link

pytestmark = pytest.mark.xdist_group("two workers")

DELAY = 0.25
PATIENCE = 15  # seconds: a worker that a test freezes is not taken for dead before
REGISTRY = "domain://registry.localhost/"
LETTER = "x" * 100_000
ENOUGH = 300  # letters: more than all buffers of the way hold together
SMALL = 65_536  # bytes: buffers of a client's socket
ALLOCATION_ROW = "SELECT 1 FROM msgnode_allocation WHERE allocation_key = ?"
LIMITS = {"LINK_BYTES": 1_000_000, "OUTBOX_BYTES": 1_000_000}  # soon full, so that little is sent


class Workers:
    """Two workers of one node, their Redis, and the link over which the other hears it."""

    def __init__(self, one: Node, other: Node, link: SlowLink, redis: OwnRedis) -> None:
        self.one = one
        self.other = other
        self.link = link
        self.redis = redis
        self.clients = AsyncExitStack()

    async def come(self, to: Node) -> Client:
        client = await self.clients.enter_async_context(to.ws())
        line = client.socket.transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        return await client.open()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, template: Path
) -> Iterator[tuple[Node, Node, SlowLink, OwnRedis]]:
    place = tmp_path_factory.mktemp("two")
    shutil.copy(template, place / "node.sqlite3")
    redis = OwnRedis(place)
    redis.start()
    with slow_link("127.0.0.1", redis.port) as link:
        common = {"WORKERS": 2, "WORKER_TIMEOUT": PATIENCE, **LIMITS}
        one = Node(place, REDIS_URL=redis.url, **common)
        other = Node(place, REDIS_URL=f"redis://127.0.0.1:{link.port}/0", **common)
        try:
            with ThreadPoolExecutor() as both:
                list(both.map(Node.start, (one, other)))
            yield one, other, link, redis
            assert one.is_running(), one.log()
            assert other.is_running(), other.log()
        finally:
            one.kill()
            other.kill()
            redis.stop()


@pytest.fixture
async def workers(running: tuple[Node, Node, SlowLink, OwnRedis]) -> AsyncIterator[Workers]:
    both = Workers(*running)
    yield both
    both.link.delay = 0
    await both.clients.aclose()


async def test_w5_after_a_200_a_worker_that_hears_late_routes_it_as_well(workers: Workers) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    heard = f"{address('comm')}/changes"
    await there.send("update", heard, {"value": 0}, sender=heard.removesuffix("/changes"))
    assert code(await there.ask("create", address())) == 404  # behind it: nobody heard it
    workers.link.delay = DELAY
    (held,) = await here.allocate()
    await there.send("create", held, {"value": 1})
    assert (await here.expect(type="create"))["to"] == held
    claimed = address()
    assert code(await here.subscribe(claimed)) == 200
    await there.send("create", claimed, {"value": 2})
    assert (await here.expect(type="create"))["to"] == claimed
    assert code(await here.subscribe(heard)) == 200
    await there.send("update", heard, {"value": 3}, sender=heard.removesuffix("/changes"))
    assert (await here.expect(type="update"))["to"] == heard


async def test_w5_an_allocation_is_not_answered_before_the_directory_has_it(
    workers: Workers,
) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    key = uuid.uuid4().hex
    with frozen(workers.redis):
        body = {"scheme": "hyperty", "value": {"number": 1, "allocationKey": key}}
        asked = await here.send("create", ALLOCATION, body)
        async with asyncio.timeout(10):
            while not is_committed(workers.one, ALLOCATION_ROW, key):
                await eventually()
        assert await here.settled() == []
    (held,) = (await here.answer(asked))["body"]["value"]["allocated"]
    await there.send("create", held, {"value": 1})
    assert (await here.expect(type="create"))["to"] == held


def is_committed(worker: Node, query: str, value: str) -> bool:
    """Whether the database has a row that is asked for with this value."""
    with closing(sqlite3.connect(worker.data_dir / "node.sqlite3")) as database:
        return database.execute(query, (value,)).fetchone() is not None


async def test_w4_what_was_given_up_at_one_worker_is_404_at_the_other(workers: Workers) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    (held,) = await here.allocate()
    assert code(await there.ask("create", address())) == 404
    await there.send("create", held, {"value": 1})
    await here.expect(type="create")
    workers.link.delay = DELAY
    assert code(await here.ask("delete", ALLOCATION, {"resource": held})) == 200
    assert code(await there.ask("create", held)) == 404


async def test_w8_an_allocation_is_answered_while_another_worker_does_nothing(
    workers: Workers,
) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    with frozen(workers.other):
        async with asyncio.timeout(PATIENCE * 2 / 3):  # before it is taken for down
            (held,) = await here.allocate()
    await there.send("create", held, {"value": 1})
    assert (await here.expect(type="create"))["to"] == held


async def test_w5_a_session_is_resumed_at_a_worker_that_has_not_heard_of_it(
    workers: Workers,
) -> None:
    there = await workers.come(workers.other)
    workers.link.delay = DELAY
    here = await workers.come(workers.one)
    await there.send("create", f"{here.runtime_url}/sm", {"value": 1})
    assert (await here.expect(type="create"))["to"] == f"{here.runtime_url}/sm"
    (held,) = await (late := await workers.come(workers.one)).allocate()
    await late.socket.close()
    back = await workers.clients.enter_async_context(workers.other.ws())
    answer = await back.reopen(late.runtime_url, late.token)
    assert code(answer) == 200
    assert "runtimeToken" not in answer["body"], "the session was lost"
    await there.send("create", held, {"value": 2})
    assert (await back.expect(type="create"))["to"] == held


async def test_w10_what_two_sessions_of_one_worker_say_never_leaves_it(workers: Workers) -> None:
    here, beside = await workers.come(workers.one), await workers.come(workers.one)
    there = await workers.come(workers.other)
    number = 100
    before = batches(workers.one)
    await converse(here, beside, number)
    alone = batches(workers.one)
    await converse(here, there, number)
    assert alone - before < number / 2, "signs of life and counters, no message"
    assert batches(workers.one) - alone >= number


async def converse(one: Client, other: Client, number: int) -> None:
    """Requests, one after another, each sent once the one before it has arrived."""
    for value in range(number):
        await one.send("create", other.runtime_url, {"value": value})
        await other.expect(type="create")


def batches(worker: Node) -> int:
    """What a worker has sent to others."""
    metrics = worker.text("/metrics?worker=this")
    found = re.search(r"^msgnode_link_batches_total\S* (\S+)", metrics, re.MULTILINE)
    return int(float(found[1])) if found else 0


async def test_an_address_is_its_sessions_at_a_worker_that_has_not_heard_of_it(
    workers: Workers,
) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    workers.link.delay = DELAY
    (held,) = await here.allocate()
    assert code(await there.ask("create", here.runtime_url, sender=held)) == 403
    (held,) = await here.allocate()
    assert code(await there.subscribe(f"{held}/subscription")) == 403
    (held,) = await here.allocate()
    assert code(await there.subscribe(held)) == 403


async def test_w7_a_frozen_worker_holds_back_who_sends_to_it_and_nothing_is_lost(
    workers: Workers,
) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    beside, bystander = await workers.come(workers.one), await workers.come(workers.one)
    (held,) = await there.allocate()
    with frozen(workers.other):
        sent = await until_held_back(here, held)
        await beside.send("create", bystander.runtime_url, {"value": 1})
        await bystander.expect(type="create", sender=beside.runtime_url)
    await all_arrive(there, sent)


async def until_held_back(sender: Client, to: str) -> int:
    """Send until the worker reads no more of the sender; how many letters were sent."""
    for number in range(ENOUGH):
        frame = f'{{"id":"{number}","type":"update","from":"{sender.runtime_url}","to":"{to}",'
        sending = asyncio.ensure_future(
            sender.send_raw(f'{frame}"body":{{"value":{number},"text":"{LETTER}"}}}}')
        )
        done, _ = await asyncio.wait({sending}, timeout=1)
        if not done:
            sending.add_done_callback(lambda task: task.exception())
            return number + 1
        await sending
    pytest.fail(f"the sender of {ENOUGH * len(LETTER)} bytes was not held back")


async def all_arrive(reader: Client, number: int) -> None:
    arrived = []
    for _ in range(number):
        frame = await reader.receive()
        assert frame["type"] == "update", frame
        arrived.append(frame["body"]["value"])
    assert arrived == list(range(number))


async def test_w4_at_a_worker_that_is_frozen_somebody_may_be_and_it_is_soon_said_so(
    workers: Workers,
) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    also = await workers.come(workers.one)
    (held,) = await there.allocate()
    with frozen(workers.other):
        async with asyncio.timeout(PATIENCE * 2 / 3):
            answers = here.ask("create", held), also.ask("create", there.runtime_url)
            assert [code(each) for each in await asyncio.gather(*answers)] == [503, 503]
    await until_heard(here, there, held)


async def test_a_runtime_that_comes_back_to_two_workers_at_once_has_one_session(
    workers: Workers,
) -> None:
    talker = await workers.come(workers.one)
    for _ in range(5):
        away = await workers.come(workers.other)
        (held,) = await away.allocate()
        await talker.send("create", held, {"value": 0})
        await away.expect(type="create")
        await away.socket.close()
        ways = [
            await workers.clients.enter_async_context(each.ws())
            for each in (workers.one, workers.other)
        ]
        answers = await asyncio.gather(
            *(each.reopen(away.runtime_url, away.token) for each in ways), return_exceptions=True
        )
        assert 200 in [code(each) for each in answers if isinstance(each, dict)]
        await talker.send("create", held, {"value": 1})
        arrived = await asyncio.gather(
            *(each.expect(type="create") for each in ways), return_exceptions=True
        )
        (got,) = [each for each in arrived if isinstance(each, dict)]
        assert got["to"] == held


async def test_what_a_registration_names_is_looked_up_at_the_other_worker(
    workers: Workers,
) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    (held,) = await there.allocate()
    (made,) = await here.allocate("comm")
    value = {"name": "x", "schema": "s", "url": made, "reporter": held, "expires": 60}
    answer = await here.ask("create", REGISTRY, {"value": value})
    assert code(answer) == 403, answer


async def test_w6_what_waits_for_a_slow_directory_arrives_in_order(workers: Workers) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    held, further = await there.allocate(number=2)
    asked = number_of(workers.one, "msgnode_holders_asked_total")
    with frozen(workers.redis):
        for number in range(100):
            await here.send("create", (held, further)[number % 2], {"value": number})
        async with asyncio.timeout(10):
            while number_of(workers.one, "msgnode_holders_asked_total") == asked:
                await eventually()
    values = [(await there.expect(type="create"))["body"]["value"] for _ in range(100)]
    assert values == list(range(100))


async def test_w4_while_the_directory_does_not_answer_what_is_not_known_is_said_and_counted(
    workers: Workers,
) -> None:
    here, there = await workers.come(workers.one), await workers.come(workers.other)
    (held,) = await there.allocate()
    (known,) = await here.allocate()
    unknown = number_of(workers.one, "msgnode_holders_unknown_total")
    with frozen(workers.redis):
        async with asyncio.timeout(PATIENCE * 2 / 3):
            assert code(await here.ask("create", held)) == 503
            await here.send("create", known, {"value": 2})
            assert (await here.expect(type="create"))["to"] == known
    assert number_of(workers.one, "msgnode_holders_unknown_total") > unknown
    await until_heard(here, there, held)


async def until_heard(here: Client, there: Client, held: str) -> None:
    """Send until it arrives; what does not is answered 503."""
    async with asyncio.timeout(20):
        await here.send("create", held, {"value": 1})
        while (frame := await there_or_answer(here, there)).get("to") != held:
            if frame["type"] == "response":
                assert code(frame) == 503
                await here.send("create", held, {"value": 1})


async def there_or_answer(here: Client, there: Client) -> Frame:
    """What comes first: the answer of the node, or the message where it was sent."""
    both = [asyncio.create_task(each.receive()) for each in (here, there)]
    done, rest = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for each in rest:
        each.cancel()
    return next(iter(done)).result()


def number_of(worker: Node, metric: str) -> int:
    """A metric of this worker, by a pattern of its name and labels."""
    metrics = worker.text("/metrics?worker=this")
    found = re.search(rf"^{metric}[^}} ]*\}}? (\S+)", metrics, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


EVEN = "from msgnode.console.operator_actions import even_out; print(even_out('operator'))"
SHARES = "SELECT max(sessions) FROM msgnode_worker"
MANY = 20


@pytest.mark.long
async def test_who_is_above_a_workers_share_is_told_to_come_back_when_an_operator_orders_it(
    workers: Workers,
) -> None:
    every = [await workers.come(workers.one) for _ in range(MANY)]
    async with asyncio.timeout(30):
        while (await asyncio.to_thread(workers.one.rows, SHARES))[0][0] < MANY:
            await eventually()
    said = await asyncio.to_thread(workers.one.manage, "shell", "-c", EVEN)
    assert "tell runtimes to come back" in said
    closed = [asyncio.create_task(each.socket.wait_closed()) for each in every]
    await asyncio.wait(closed, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert {each.socket.close_code for each in every} == {3001, None}
    for task in closed:
        task.cancel()
