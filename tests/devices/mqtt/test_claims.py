"""How a sensor topic comes to hold its objects."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.core import messages
from msgnode.core.errors import Forbidden, NodeError, Unavailable
from msgnode.core.messages import Message
from msgnode.devices.mqtt import readings
from msgnode.devices.mqtt.broker import BrokerAccess
from msgnode.devices.mqtt.broker_client import BrokerAddress
from msgnode.devices.mqtt.counters import MqttCounters
from msgnode.devices.mqtt.delivery import Delivery
from msgnode.devices.mqtt.sensors import SensorFeed, SensorTopic
from tests.node import eventually


class Connection:
    """A node that gives these answers, one after another: a code, or an error."""

    def __init__(self, *answers: int | NodeError) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []
        self.carried: list[int] = []
        self.is_held_back = self.has_frames = False

    def frame_received(self, frame: bytes) -> None:
        self.carried.append(messages.parse(frame).fields()["value"])

    async def carry_through(self, message: Message) -> Message:
        if isinstance(answer := self.answers[0], NodeError):
            self._note(message)
            raise answer
        return message

    async def response(self, message: Message, until: float) -> Message | None:
        code = self._note(message)
        if not code:
            return None  # none came in time
        return messages.parse(messages.reply(message, {"code": code, "description": "why"}))

    def _note(self, message: Message) -> Any:
        resources = message.fields()["resources"]
        self.asked.append([each for each in resources if not each.endswith("/subscription")])
        return self.answers.pop(0)


def feed_at(monkeypatch: pytest.MonkeyPatch, connection: Connection) -> SensorFeed:
    """A feed whose session is open at this node, and carries frames to `connection.carried`."""
    monkeypatch.setattr(readings, "_CLAIM_AGAIN", 0.0)
    topic = SensorTopic(1, "t/+", "iot://localhost/{1}", "value")
    opener: Any = None
    access = BrokerAccess(BrokerAddress("", 0), "node", MqttCounters(), lambda: True)
    feed = SensorFeed(topic, "localhost", access, opener, lambda: None)
    node: Any = connection
    feed._session.connection = node
    return feed


async def claimed(monkeypatch: pytest.MonkeyPatch, connection: Connection, *urls: str) -> Any:
    feed = feed_at(monkeypatch, connection)
    for url in urls:
        feed._enter(url)
    await settled(feed)
    return feed._counters


async def settled(feed: SensorFeed) -> None:
    """Until nothing is being claimed."""
    async with asyncio.timeout(10):
        while feed._claims._claiming is not None:
            await eventually()


def said(feed: SensorFeed, value: int, qos: int = 1) -> Delivery:
    """A reading of `a` comes from the broker."""
    message = SimpleNamespace(
        topic="t/a", payload=b"%d" % value, qos=qos, retain=False, mid=value, properties=None
    )
    delivery = Delivery(Broker(), message)
    feed._receive(delivery)
    return delivery


class Broker:
    """Takes every acknowledgement."""

    is_filling = False

    def released(self, size: int, qos: int) -> None:
        """Nothing is counted."""

    def acknowledge(self) -> None:
        """Nobody asks."""


A, B = "iot://localhost/a", "iot://localhost/b"


@pytest.mark.parametrize("passing", [503, 504, 0, Unavailable("not known just now")])
async def test_an_object_whose_holder_is_not_known_just_now_is_claimed_again(
    monkeypatch: pytest.MonkeyPatch, passing: int | NodeError
) -> None:
    connection = Connection(passing, passing, 200)
    await claimed(monkeypatch, connection, A, B)
    assert connection.asked == [[A, B]] * 3


@pytest.mark.parametrize("refusal", [403, Forbidden("it is another's")])
async def test_of_several_objects_one_that_is_refused_is_claimed_no_more_and_keeps_no_other_back(
    monkeypatch: pytest.MonkeyPatch, refusal: int | NodeError
) -> None:
    connection = Connection(refusal, refusal, 503, 200)
    counters = await claimed(monkeypatch, connection, A, B)
    assert connection.asked == [[A, B], [A], [B], [B]]
    assert counters.last_error


async def test_readings_wait_in_order_and_unacknowledged_while_nobody_can_say_whose_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Connection(503, 503, 200)
    feed = feed_at(monkeypatch, connection)
    readings = [said(feed, value) for value in range(5)]
    assert feed._claims.objects[A].value == b"4"
    assert connection.carried == []
    assert not any(each.is_done for each in readings)
    await settled(feed)
    assert connection.carried == list(range(5))
    assert all(each.is_done for each in readings)
    said(feed, 5)
    assert connection.carried[-1] == 5


@pytest.mark.parametrize("refusal", [403, Forbidden("it is another's")])
async def test_a_claim_that_is_refused_for_good_keeps_no_reading_back(
    monkeypatch: pytest.MonkeyPatch, refusal: int | NodeError
) -> None:
    connection = Connection(refusal, refusal)
    feed = feed_at(monkeypatch, connection)
    said(feed, 0)
    await settled(feed)
    assert connection.carried == [0]


async def test_readings_do_not_wait_for_a_claim_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "HELD_SECONDS", -1.0)
    connection = Connection(*[503] * 10_000)
    feed = feed_at(monkeypatch, connection)
    said(feed, 0)
    async with asyncio.timeout(10):
        while not connection.carried:
            await eventually()
    assert connection.carried == [0]
    connection.answers = [200]
    await settled(feed)


async def test_of_qos_0_so_many_readings_wait_and_those_beyond_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readings, "HELD_AT_MOST", 2)
    connection = Connection(503, 200)
    feed = feed_at(monkeypatch, connection)
    for value in range(4):
        said(feed, value, qos=0)
    assert feed._counters.dropped == 2
    said(feed, 4)
    await settled(feed)
    assert connection.carried == [0, 1, 4]


async def test_readings_that_wait_when_the_session_ends_wait_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Connection(503, 200)
    feed = feed_at(monkeypatch, connection)
    monkeypatch.setattr(feed._session, "_go_on", lambda: None)
    said(feed, 0)
    feed._session.connection = None
    said(feed, 1)
    await settled(feed)
    assert connection.carried == []
    assert [frame for _, frame in feed._session._waiting]
    feed._session.connection = connection  # type: ignore[assignment]
    connection.answers = [200]
    said(feed, 2)
    assert len(feed._session._waiting) == 3
