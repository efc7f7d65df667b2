"""Webhooks and wake-ups without a node: the real rooms, and a real server that is posted to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from msgnode.devices import webhook
from msgnode.devices.push import ALARM, AT_ONCE
from msgnode.sessions.rules import CloseCode
from tests.client import LIMIT
from tests.devices.in_process import OUTBOX, Worker
from tests.devices.receiver import Receiver, receiver
from tests.devices.test_push import Service, service
from tests.node import eventually


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Repetitions come soon."""
    monkeypatch.setattr(webhook, "FIRST_PAUSE", 0.05)
    yield


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with receiver() as found:
        yield found


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker()
    yield worker
    await worker.stop()


@pytest.fixture
async def pushes() -> AsyncIterator[Service]:
    async with service() as found:
        yield found


async def hook(worker: Worker, token: str, server: Receiver) -> None:
    asked = await worker.ask("PUT", "/webhook", {"url": server.url}, token)
    assert asked.status == 200, asked.body
    server.secret = asked.json()["secret"]


async def values(server: Receiver, number: int) -> list[int]:
    return [each["body"]["value"] for each in await server.messages(number)]


async def until_hooks(worker: Worker, number: int) -> None:
    async with asyncio.timeout(LIMIT):
        while len(worker.webhooks) != number:
            await eventually()


async def test_what_comes_is_posted_in_order_and_confirmed(
    server: Receiver, worker: Worker
) -> None:
    token = await worker.open()
    worker.deliver(0, 1)
    await hook(worker, token, server)
    worker.deliver(*range(2, 300))
    assert await values(server, 300) == list(range(300))
    asked = await worker.ask("GET", "/webhook", token=token)
    assert asked.json() == {"url": server.url, "state": "live"}
    assert (await worker.ask("DELETE", "/webhook", token=token)).status == 204
    assert (await worker.ask("GET", "/webhook", token=token)).status == 404
    await until_hooks(worker, 0)
    assert (await worker.ask("GET", "/poll?wait=0", token=token)).status == 204


async def test_what_a_server_answers_and_cannot_be_carried_is_counted_and_said(
    server: Receiver, worker: Worker
) -> None:
    token = await worker.open()
    await hook(worker, token, server)
    server.answer = lambda _: (200, b'{"messages": [{"type": "nonsense"}, 7]}')
    worker.deliver(0)
    await values(server, 1)
    async with asyncio.timeout(LIMIT):
        while worker.webhooks.counters.refused < 2:
            await eventually()
    told = (await worker.ask("GET", "/webhook", token=token)).json()
    assert "2 messages were not carried" in told["state"]


@pytest.mark.usefixtures("quick")
async def test_case_22_failures_are_repeated_under_one_id_and_410_is_the_end(
    server: Receiver, worker: Worker
) -> None:
    token = await worker.open()
    answers = iter((500, 302, 429, 204))
    server.answer = lambda _: (next(answers), b"")
    await hook(worker, token, server)
    worker.deliver(1, 2)
    assert await values(server, 2) == [1, 2]
    assert len({headers["webhook-id"] for headers, _ in server.raw}) == 1
    while not worker.webhooks.counters.delivered:
        await eventually()
    assert worker.webhooks.counters.failed == 3
    server.answer = lambda _: (410, b"")
    worker.deliver(3)
    await until_hooks(worker, 0)
    left = (await worker.ask("GET", "/poll", token=token)).json()["messages"]
    assert [each["body"]["value"] for each in left] == [3]


async def test_what_is_posted_after_a_webhook_was_set_again_has_an_id_of_its_own(
    server: Receiver, worker: Worker
) -> None:
    """A receiver takes what comes under a known id for a repetition, and drops it."""
    token = await worker.open()
    for number in range(3):
        await hook(worker, token, server)
        worker.deliver(number)
        assert await values(server, 1) == [number]
    assert len({headers["webhook-id"] for headers, _ in server.raw}) == 3


async def test_a_post_that_is_taken_late_moves_no_stream_that_took_over(
    server: Receiver, worker: Worker
) -> None:
    token = await worker.open()
    await hook(worker, token, server)
    server.may_answer.clear()
    worker.deliver(1)
    async with asyncio.timeout(LIMIT):
        while not server.raw:
            await eventually()
    stream = worker.request("GET", "/events", token=token)
    await stream.says(b"retry")
    worker.deliver(2, 3)
    await stream.says(b'"value": 3')
    server.may_answer.set()
    await until_hooks(worker, 0)
    worker.deliver(4)
    await stream.says(b'"value": 4')
    stream.leave()
    await stream.task
    assert stream.body.count(b'"value": 2') == 1, "nothing comes twice"


@pytest.mark.usefixtures("quick")
async def test_a_server_that_takes_nothing_costs_no_more_than_its_session_may_have(
    server: Receiver, worker: Worker
) -> None:
    token = await worker.open()
    is_back = False
    server.answer = lambda _: (204 if is_back else 500, b"")
    await hook(worker, token, server)
    large = b'{"body": {"value": "%b"}}' % (b"x" * 1000)
    for _ in range(1000):
        worker.session().deliver(large)
        assert worker.sessions.queues.bytes <= 2 * OUTBOX
    is_back = True
    worker.deliver(7)
    heard: list[object] = []
    recovering = asyncio.create_task(worker.recovery.run())
    async with asyncio.timeout(LIMIT):
        while "gap" not in heard or 7 not in heard:
            posted = await server.posted.get()
            heard += [each["body"]["value"] for each in posted["messages"]]
            heard += ["gap"] if posted["gap"] else []
    recovering.cancel()


async def test_a_stream_ends_the_webhook_and_the_end_of_the_session_is_posted(
    server: Receiver, worker: Worker
) -> None:
    token = await worker.open()
    await hook(worker, token, server)
    stream = worker.request("GET", "/events", token=token)
    await until_hooks(worker, 0)
    assert (await server.posted.get())["close"]["code"] == CloseCode.REPLACED
    stream.leave()
    await stream.task
    await hook(worker, token, server)
    worker.sessions.end(worker.session(), CloseCode.REFUSED, "banned")
    assert (await server.posted.get())["close"]["code"] == CloseCode.REFUSED
    await until_hooks(worker, 0)


async def test_a_webhook_is_set_at_the_worker_that_has_the_session(
    server: Receiver, worker: Worker
) -> None:
    mine, other = worker, Worker()
    other.beside(mine)
    mine.beside(other)
    token = await mine.open()
    await hook(other, token, server)
    assert (len(mine.webhooks), len(other.webhooks)) == (1, 0)
    mine.deliver(1)
    assert await values(server, 1) == [1]
    assert (await other.ask("DELETE", "/webhook", token=token)).status == 204


async def test_a_worker_that_stops_waits_for_a_webhook_only_while_it_posts(
    server: Receiver, worker: Worker
) -> None:
    token = await worker.open()
    await hook(worker, token, server)
    worker.deliver(1)
    async with asyncio.timeout(1.9):  # two seconds are the most
        await worker.webhooks.stop()
    assert await values(server, 1) == [1]


async def test_a_worker_that_stops_leaves_no_connection_open(
    server: Receiver, worker: Worker
) -> None:
    token = await worker.open()
    await hook(worker, token, server)
    worker.deliver(1)
    assert await values(server, 1) == [1]
    assert server.connections == 1  # kept for what comes next
    await worker.stop()
    async with asyncio.timeout(LIMIT):
        while server.connections:
            await eventually()


@pytest.mark.parametrize(("status", "left"), [(410, 0), (404, 0), (403, 1), (503, 1)])
async def test_case_31_what_a_push_service_answers(
    pushes: Service, status: int, left: int, worker: Worker
) -> None:
    token = await worker.open()
    await worker.ask("PUT", "/push", {"endpoint": pushes.endpoint}, token)
    pushes.status = status
    worker.deliver(1)
    worker.wakeups.look(100.0)
    await pushes.next()
    await settled(worker)
    assert len(worker.wakeups) == left
    assert worker.alarms == ([ALARM] if status == 403 else [])
    worker.wakeups.look(101.0)
    assert pushes.asked.empty(), "not again within thirty seconds"


async def test_a_device_is_woken_again_that_has_fetched_before_the_push_service_has_answered(
    pushes: Service, worker: Worker
) -> None:
    token = await worker.open()
    await worker.ask("PUT", "/push", {"endpoint": pushes.endpoint}, token)
    pushes.may_answer.clear()
    worker.deliver(1)
    worker.wakeups.look(100.0)
    await pushes.next()
    assert len((await worker.ask("GET", "/poll?wait=0", token=token)).json()["messages"]) == 1
    pushes.may_answer.set()
    await settled(worker)
    worker.deliver(2)
    worker.wakeups.look(101.0)
    assert pushes.asked.empty(), "not again within thirty seconds"
    worker.wakeups.look(131.0)
    await pushes.next()
    await settled(worker)
    worker.wakeups.look(161.0)
    assert pushes.asked.empty(), "it has not fetched"


async def test_a_push_service_that_is_frozen_holds_up_no_other(pushes: Service) -> None:
    worker = Worker()
    async with service("127.0.0.2") as frozen:
        frozen.may_answer.clear()
        for number in range(AT_ONCE + 8):
            await asleep(worker, f"runtime://d/{number}", frozen.endpoint)
        await asleep(worker, "runtime://d/other", pushes.endpoint)
        worker.wakeups.look(100.0)
        await pushes.next()
        await worker.stop()


async def asleep(worker: Worker, name: str, endpoint: str) -> None:
    """A device that is to be woken."""
    token = await worker.open(name)
    answer = await worker.ask("PUT", "/push", {"endpoint": endpoint}, token)
    assert answer.status == 201, answer.body
    for each in worker.sessions.sessions.values():
        if each.runtime_url == name:
            each.deliver(b'{"body": {"value": 1}}')


async def settled(worker: Worker) -> None:
    async with asyncio.timeout(LIMIT):
        while worker.wakeups._sending:
            await eventually()
