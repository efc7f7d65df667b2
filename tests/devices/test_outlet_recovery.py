"""Webhooks and push subscriptions go on with their session: after a restart, at another worker."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from msgnode.devices.outlet_store import PUSH, WEBHOOK
from tests.client import LIMIT, Client, address, runtime
from tests.devices.client import Device, api_key
from tests.devices.in_process import Worker
from tests.devices.receiver import Receiver, receiver
from tests.devices.test_push import service
from tests.e2e.pair import Pair
from tests.node import eventually, running

SETTINGS: dict[str, object] = {
    "DEVICE_HTTP": True,
    "DEVICE_WEBHOOKS": True,
    "WEBHOOK_NETWORKS": "127.0.0.0/8",
    "PUSH_CONTACT": "mailto:o@example.org",
    "PUSH_HOSTS": "127.0.0.1",
}


async def hook(device: Device, server: Receiver) -> None:
    answer = await device.http.put("/webhook", json={"url": server.url}, headers=device.headers)
    assert answer.status_code == 200, answer.text
    server.secret = answer.json()["secret"]


async def heard_until(server: Receiver, last: int, talker: Client, to: str) -> list[Any]:
    """What was posted in its order, until a value arrives that is said again and again."""
    found: list[Any] = []
    async with asyncio.timeout(LIMIT):
        while last not in found:
            await talker.send("create", to, {"value": last})
            try:
                posted = await asyncio.wait_for(server.posted.get(), 1.0)
            except TimeoutError:
                continue
            assert "close" not in posted, "its session has not ended"
            found += [
                each["body"]["value"] for each in posted["messages"] if "value" in each["body"]
            ]
            told = [each for each in posted["messages"] if each["type"] == "update"]
            found += ["gap"] if posted["gap"] or told else []
    return found


@pytest.mark.long
async def test_webhook_and_push_outlive_a_node_that_was_killed(
    tmp_path: Path, template: Path
) -> None:
    with running(tmp_path, template, **SETTINGS) as node:
        key = api_key(node, "device:connect", "device:many")
        async with (
            receiver() as server,
            receiver() as former,
            service() as pushes,
            Device(node, key=key) as device,
            Device(node, key=key) as removed,
            Device(node, key=key) as sleeper,
        ):
            await hook(device, server)
            await hook(removed, former)
            gone = await removed.http.delete("/webhook", headers=removed.headers)
            assert gone.status_code == 204
            body = {"endpoint": pushes.endpoint}
            kept = await sleeper.http.put("/push", json=body, headers=sleeper.headers)
            assert kept.status_code == 201, kept.text
            node.kill()
            node.start()
            async with node.ws() as socket:
                talker = await socket.open(runtime())
                assert "gap" in await heard_until(server, 1, talker, device.runtime_url)
                await talker.send("create", removed.runtime_url, {"value": 1})
                await talker.send("create", sleeper.runtime_url, {"value": 1})
                assert (await pushes.next())["urgency"] == "high"
                answer = await removed.poll()
                assert answer.status_code == 200, "nobody else reads it"
                assert former.posted.empty()


@pytest.fixture
async def pair(tmp_path: Path, template: Path, redis_url: str) -> AsyncIterator[Pair]:
    shutil.copy(template, tmp_path / "node.sqlite3")
    both = Pair(tmp_path, REDIS_URL=redis_url, **SETTINGS)
    async with both.running():
        yield both


async def talk(talker: Client, to: str, numbers: range) -> None:
    for number in numbers:
        await talker.send("create", to, {"value": number})
    await talker.ask("read", address())  # what was sent before has been carried


@pytest.mark.long
async def test_a_webhook_loses_nothing_when_its_worker_stops_in_peace(pair: Pair) -> None:
    talker = await pair.come(pair.other)
    key = api_key(pair.one, "device:connect", "device:many")
    async with receiver() as server, Device(pair.one, key=key) as device:
        await hook(device, server)
        await talk(talker, device.runtime_url, range(50))
        heard = await server.messages(50)
        server.answer = lambda _: (503, b"")  # what waits at the stop goes along
        await talk(talker, device.runtime_url, range(50, 100))
        pair.one.terminate()
        assert await asyncio.to_thread(pair.one.status) == 0
        server.answer = lambda _: (204, b"")
        found = await heard_until(server, 100, talker, device.runtime_url)
        values = [each["body"]["value"] for each in heard] + found
        assert "gap" not in values
        assert values[:101] == list(range(101))


@pytest.mark.long
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_webhook_goes_on_at_the_other_worker(pair: Pair, sign: signal.Signals) -> None:
    talker = await pair.come(pair.other)
    key = api_key(pair.one, "device:connect", "device:many")
    async with receiver() as server, Device(pair.one, key=key) as device:
        await hook(device, server)
        await talk(talker, device.runtime_url, range(50))
        assert len(await server.messages(50)) == 50
        os.kill(pair.one.pid, sign)
        found = await heard_until(server, 100, talker, device.runtime_url)
        assert "gap" in found
        if sign is signal.SIGSTOP:
            before = len(server.raw)
            os.kill(pair.one.pid, signal.SIGCONT)
            await heard_until(server, 200, talker, device.runtime_url)
            posts = [body for _, body in server.raw[before:]]
            assert not any(b'"value":100' in body and b'"value":200' in body for body in posts)
            values = [each for body in posts for each in (100, 200) if b":%d}" % each in body]
            assert values == sorted(values), "the worker that woke posts nothing of before"


async def test_a_session_that_comes_back_has_its_webhook_and_push_again() -> None:
    worker = Worker()
    async with receiver() as server, service() as pushes:
        token = await worker.open()
        asked = await worker.ask("PUT", "/webhook", {"url": server.url}, token)
        server.secret = asked.json()["secret"]
        await worker.ask("PUT", "/push", {"endpoint": pushes.endpoint}, token)
        session = worker.session()
        assert {kind for _, kind in worker.outlets.kept} == {WEBHOOK, PUSH}
        device = worker.devices.of_session(session.id)
        assert device is not None
        worker.webhooks.end(device)  # as after a restart
        worker.wakeups.unsubscribe(device)
        device.stop_reading = None
        worker.recovery.arrived(session)
        recovering = asyncio.create_task(worker.recovery.run())
        try:
            async with asyncio.timeout(LIMIT):
                while worker.recovery.recovered < 2:
                    await eventually()
            worker.deliver(1)
            assert [each["body"]["value"] for each in await server.messages(1)] == [1]
            assert (len(worker.webhooks), len(worker.wakeups)) == (1, 1)
        finally:
            recovering.cancel()
        worker.sessions.end(session, 4403, "banned")
        async with asyncio.timeout(LIMIT):
            while worker.outlets.kept:
                worker.wakeups.look(0.0)
                await eventually()
        await worker.stop()
