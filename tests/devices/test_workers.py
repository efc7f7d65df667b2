"""A device and two workers: whichever of them a request reaches, the session is one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.client import address
from tests.devices.client import Device
from tests.e2e.pair import Pair, running
from tests.node import eventually

pytestmark = pytest.mark.long


@pytest.fixture
async def pair(tmp_path: Path, template: Path) -> AsyncIterator[Pair]:
    with running(tmp_path, template, DEVICE_HTTP=True) as both:
        yield both
        await both.leave()


def beside(device: Device, port: int) -> Device:
    """The same device, whose requests reach another worker."""
    other = Device(None, device.runtime_url, port)
    other.token = device.token
    return other


async def test_a_worker_that_stops_in_peace_loses_nothing_of_a_device(pair: Pair) -> None:
    talker = await pair.come(pair.other)
    async with Device(pair.one) as device:
        other = beside(device, pair.other.port)
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
        pair.one.terminate()
        assert await asyncio.to_thread(pair.one.status) == 0
        while len(heard) < 6:
            answer = (await other.poll(answer["next"])).json()
            assert answer["gap"] is False
            heard += [each["body"]["value"] for each in answer["messages"]]
        assert heard == list(range(6))
        await other.http.aclose()


async def test_a_stream_goes_on_elsewhere_when_the_worker_of_its_session_is_frozen(
    pair: Pair,
) -> None:
    async with Device(pair.one) as device:
        other = beside(device, pair.other.port)
        (mine,) = await device.allocate()
        async with other.events() as events:
            talker = await pair.come(pair.other)
            await talker.send("create", mine, {"value": 1})
            assert (await events.message())["body"]["value"] == 1
            os.kill(pair.one.pid, signal.SIGSTOP)
            try:
                name, data = await events.next()
                assert (name, data["code"]) == ("close", 3001)
                while (answer := await other.poll(wait=1)).status_code in (503, 504):
                    await eventually()
                assert answer.status_code in (200, 204)
            finally:
                os.kill(pair.one.pid, signal.SIGCONT)
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
