"""A device and two workers: whichever of them a request reaches, the session is one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.client import address
from tests.devices.client import Device
from tests.e2e.pair import Pair, running
from tests.node import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Pair]:
    """Workers that outlive a test: of all tests that end neither."""
    with running(tmp_path_factory.mktemp("workers"), template, DEVICE_HTTP=True) as both:
        yield both
        assert both.one.is_running(), both.one.log()
        assert both.other.is_running(), both.other.log()


@pytest.fixture
async def pair(workers: Pair) -> AsyncIterator[Pair]:
    yield workers
    await workers.leave()


@pytest.fixture
async def own_pair(tmp_path: Path, template: Path) -> AsyncIterator[Pair]:
    """Workers of a test's own, which may end them."""
    with running(tmp_path, template, DEVICE_HTTP=True) as both:
        yield both
        await both.leave()


def beside(device: Device, port: int) -> Device:
    """The same device, whose requests reach another worker."""
    other = Device(None, device.runtime_url, port)
    other.token = device.token
    return other


async def test_requests_at_either_worker_are_those_of_one_session(pair: Pair) -> None:
    talker = await pair.come(pair.one)
    async with Device(pair.one) as device:
        other = beside(device, pair.other.port)
        (mine,) = await other.allocate()
        await talker.send("create", mine, {"value": 1})
        await talker.send("create", device.runtime_url, {"value": 2})
        answer = (await other.poll()).json()
        while len(answer["messages"]) < 2:
            answer = (await other.poll()).json()
        assert [each["body"]["value"] for each in answer["messages"]] == [1, 2]
        assert (await device.poll(answer["next"], wait=0)).status_code == 204
        kept = await other.http.put("/sessions/current", headers=other.headers)
        assert (kept.status_code, kept.json()["resumed"]) == (200, True)
        gone = await other.http.delete("/sessions/current", headers=other.headers)
        assert gone.status_code == 204
        assert (await device.poll(wait=0)).status_code == 401
        await other.http.aclose()


async def test_a_stream_at_one_worker_hears_while_messages_are_posted_at_the_other(
    pair: Pair,
) -> None:
    async with Device(pair.one) as device:
        other = beside(device, pair.other.port)
        (mine,) = await device.allocate()
        update = {"type": "create", "from": device.runtime_url, "to": mine}
        async with other.events() as events:
            for n in range(50):
                at = device if n % 2 else other
                assert (await at.post({**update, "id": n, "body": {"value": n}})).status_code == 202
            heard = [(await events.message())["body"]["value"] for _ in range(50)]
            last = events.last_id
        assert heard == list(range(50))
        await device.post({**update, "id": 50, "body": {"value": 50}})
        async with device.events(last) as events:
            assert (await events.message())["body"]["value"] == 50
        await other.http.aclose()


async def test_the_newest_reader_wins_whichever_worker_it_came_to(pair: Pair) -> None:
    talker = await pair.come(pair.one)
    async with Device(pair.one) as device:
        other = beside(device, pair.other.port)
        async with other.events() as remote:
            await talker.send("create", device.runtime_url, {"value": 1})
            assert (await remote.message())["body"]["value"] == 1
            async with device.events() as local:
                name, data = await remote.next()
                assert (name, data["code"]) == ("close", 4409)
                await talker.send("create", device.runtime_url, {"value": 2})
                assert (await local.message())["body"]["value"] == 2
                async with other.events() as again:
                    name, data = await local.next()
                    assert (name, data["code"]) == ("close", 4409)
                    await talker.send("create", device.runtime_url, {"value": 3})
                    assert (await again.message())["body"]["value"] == 3
        await other.http.aclose()


async def test_one_idempotency_key_at_two_workers_at_once_is_carried_once(pair: Pair) -> None:
    listener = await pair.come(pair.one)
    async with Device(pair.one) as device:
        other = beside(device, pair.other.port)
        key = {"Idempotency-Key": "once"}
        at = [device, other] * 3
        answers = await asyncio.gather(
            *(each.send("create", listener.runtime_url, {"value": 1}, **key) for each in at)
        )
        assert {each.status_code for each in answers} == {202}
        wrong = await other.send("create", listener.runtime_url, {"value": 2}, **key)
        assert wrong.status_code == 422
        await device.send("create", listener.runtime_url, {"value": 3})
        heard = [(await listener.receive())["body"]["value"] for _ in range(2)]
        assert heard == [1, 3]
        await other.http.aclose()


async def test_a_worker_that_stops_in_peace_loses_nothing_of_a_device(own_pair: Pair) -> None:
    talker = await own_pair.come(own_pair.other)
    async with Device(own_pair.one) as device:
        other = beside(device, own_pair.other.port)
        for n in range(3):
            await talker.send("create", device.runtime_url, {"value": n})
        answer = (await device.poll()).json()
        heard = [each["body"]["value"] for each in answer["messages"]]
        while len(heard) < 3:
            answer = (await device.poll(answer["next"])).json()
            heard += [each["body"]["value"] for each in answer["messages"]]
        for n in range(3, 6):
            await talker.send("create", device.runtime_url, {"value": n})
        await talker.ask("read", address())  # what was sent before it has been carried
        own_pair.one.terminate()
        assert await asyncio.to_thread(own_pair.one.status) == 0
        while len(heard) < 6:
            answer = (await other.poll(answer["next"])).json()
            assert answer["gap"] is False
            heard += [each["body"]["value"] for each in answer["messages"]]
        assert heard == list(range(6))
        await other.http.aclose()


async def test_a_device_goes_on_with_its_session_after_its_worker_was_killed(
    own_pair: Pair,
) -> None:
    async with Device(own_pair.one) as device:
        other = beside(device, own_pair.other.port)
        (mine,) = await device.allocate()
        async with other.events() as events:
            talker = await own_pair.come(own_pair.other)
            await talker.send("create", mine, {"value": 1})
            assert (await events.message())["body"]["value"] == 1
            own_pair.one.kill()
            name, data = await events.next()
            assert (name, data["code"]) == ("close", 3001)
        while (answer := await other.poll(wait=1)).status_code == 503:
            await eventually()
        assert answer.status_code in (200, 204)
        while True:
            await talker.send("create", mine, {"value": 2})
            found = await other.poll(wait=5)
            values = [each["body"]["value"] for each in found.json()["messages"]]
            if 2 in values:
                break
        await other.http.aclose()


async def test_a_stream_goes_on_elsewhere_when_the_worker_of_its_session_is_frozen(
    own_pair: Pair,
) -> None:
    async with Device(own_pair.one) as device:
        other = beside(device, own_pair.other.port)
        (mine,) = await device.allocate()
        async with other.events() as events:
            talker = await own_pair.come(own_pair.other)
            await talker.send("create", mine, {"value": 1})
            assert (await events.message())["body"]["value"] == 1
            os.kill(own_pair.one.pid, signal.SIGSTOP)
            try:
                name, data = await events.next()
                assert (name, data["code"]) == ("close", 3001)
                while (answer := await other.poll(wait=1)).status_code in (503, 504):
                    await eventually()
                assert answer.status_code in (200, 204)
            finally:
                os.kill(own_pair.one.pid, signal.SIGCONT)
        while True:
            await talker.send("create", mine, {"value": 2})
            heard = (await other.poll(wait=5)).json()["messages"]
            if 2 in [each["body"].get("value") for each in heard]:
                break
        async with asyncio.timeout(60):  # the one that woke asks where the session is now
            while True:
                with suppress(httpx.TransportError):  # it begins again
                    if (await device.poll(wait=0)).status_code in (200, 204):
                        break
                await eventually()
        await other.http.aclose()


async def test_a_device_that_comes_twice_with_one_session_is_one(pair: Pair) -> None:
    """Both resume a session that was lost, at the same moment and at two workers."""
    talker = await pair.come(pair.one)
    async with Device(pair.one) as device:
        other = beside(device, pair.other.port)
        for _ in range(5):
            at_once = [each.poll(wait=0) for each in (device, other) * 4]
            answers = await asyncio.gather(*at_once)
            assert {each.status_code for each in answers} <= {200, 204}
        await talker.send("create", device.runtime_url, {"value": 1})
        while (answer := await device.poll(wait=2)).status_code == 204:
            pass
        told = answer.json()
        assert [each["body"]["value"] for each in told["messages"]] == [1]
        assert (await other.poll(told["next"], wait=0)).status_code == 204
        await other.http.aclose()
