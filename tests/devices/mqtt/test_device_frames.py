"""Devices that are forgotten, and those that must wait: nobody else waits for them."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.core.errors import Forbidden, NodeError, TooMany, Unavailable
from msgnode.devices.mqtt import device_frames, session
from msgnode.devices.mqtt.broker import BrokerAccess
from msgnode.devices.mqtt.broker_client import BrokerAddress
from msgnode.devices.mqtt.counters import MqttCounters
from msgnode.devices.mqtt.delivery import Delivery
from msgnode.devices.mqtt.device_frames import DeviceFrames
from msgnode.devices.mqtt.link import BrokerLink
from msgnode.devices.mqtt.session import BrokerConnection, BrokerSessions
from msgnode.devices.mqtt.topics import DeviceTopics
from tests.devices.in_process import Worker
from tests.node import eventually


class Refusing:
    """Opens no session."""

    def __init__(self, error: NodeError) -> None:
        self.error = error

    async def open(self, *_: Any) -> Any:
        raise self.error


def frames_at(monkeypatch: pytest.MonkeyPatch, error: NodeError) -> DeviceFrames:
    """Devices whose sessions are refused with this error."""
    monkeypatch.setattr(session, "_RETRY_SECONDS", 0.0)
    opener: Any = Refusing(error)
    access = BrokerAccess(BrokerAddress("", 0, window=2), "node", MqttCounters(), lambda: True)
    topics = DeviceTopics("rethink", "localhost")
    return DeviceFrames("localhost", topics, access, opener, 0.0, lambda: None)


def heard(frames: DeviceFrames, kind: str, payload: bytes) -> Delivery:
    """The broker says something of the device `lamp`, which is not acknowledged."""
    message = SimpleNamespace(
        topic=f"rethink/localhost/lamp/{kind}", payload=payload, qos=1, retain=False, mid=1,
        properties=None,
    )  # fmt: skip
    client: Any = SimpleNamespace(
        acknowledge=lambda: None,
        released=lambda size, qos: None,
        is_filling=False,
        unacknowledged=deque(),
        has_room=False,
        drop=lambda: None,
    )
    delivery = Delivery(client, message)
    client.unacknowledged.append(delivery)
    frames.broker._client = client
    frames._receive(delivery)
    return delivery


async def until_done(frames: DeviceFrames, delivery: Delivery) -> None:
    async with asyncio.timeout(10):
        while not delivery.is_done:
            frames._relieve()
            await eventually()
    frames.leave()


async def test_a_device_that_the_broker_knows_no_more_when_it_is_back_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = frames_at(monkeypatch, Forbidden("no"))
    heard(frames, "status", b"online")
    frames._look()
    assert list(frames._devices) == ["lamp"], "it is online"
    frames._down("the broker has ended")
    async with asyncio.timeout(10):
        while frames._devices:
            frames._look()
            await eventually()


async def test_a_frame_waits_for_a_node_that_cannot_open_its_session_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_frames, "HELD_SECONDS", 0.5)
    frames = frames_at(monkeypatch, Unavailable("the database is away"))
    delivery = heard(frames, "out", b"{}")
    await eventually()
    assert not delivery.is_done
    await until_done(frames, delivery)
    assert frames._counters.refused == 1
    assert "the database is away" in frames._counters.last_error


@pytest.mark.parametrize("is_common", [False, True])
async def test_a_device_that_is_held_back_alone_is_refused_where_others_wait_behind_it(
    monkeypatch: pytest.MonkeyPatch, is_common: bool
) -> None:
    frames = frames_at(monkeypatch, Forbidden("no"))
    heard(frames, "status", b"online")
    held: Any = SimpleNamespace(
        is_held_back=True, has_frames=False, flow=SimpleNamespace(unknown_facts=int(is_common)),
        ready=asyncio.Event().wait,
    )  # fmt: skip
    frames._devices["lamp"].session.connection = held
    delivery = heard(frames, "out", b"{}")
    assert not delivery.is_done
    client: Any = frames.broker._client
    client.unacknowledged.append(SimpleNamespace(is_done=True))  # another's
    if is_common:
        for _ in range(5):
            frames._relieve()
            await eventually()
        assert not delivery.is_done, "the others wait for the same"
    else:
        await until_done(frames, delivery)
        assert "faster" in frames._counters.last_error
    frames._devices.clear()


async def test_sessions_that_are_being_opened_count_towards_the_limit_of_connections() -> None:
    worker = Worker(most_of_a_source=2)
    sessions = BrokerSessions(worker.parts)
    worker.store.is_full = True
    with pytest.raises(NodeError, match="could not be stored"):
        await sessions.open("runtime://d/0", "0", BrokerLink())
    assert not worker.sockets.connections
    worker.store.is_full = False
    worker.store.commits = asyncio.get_running_loop().create_future()
    asked = [
        asyncio.create_task(sessions.open(f"runtime://d/{each}", each, BrokerLink()))
        for each in "123"
    ]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    worker.store.commits.set_result(None)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in answers] == [BrokerConnection, BrokerConnection, TooMany]
    assert len(worker.sockets.connections) == 2
