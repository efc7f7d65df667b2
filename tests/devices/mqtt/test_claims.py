"""How a sensor topic comes to hold its objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from msgnode.core import messages
from msgnode.core.errors import Forbidden, NodeError, Unavailable
from msgnode.core.messages import Message
from msgnode.devices.mqtt import sensors
from msgnode.devices.mqtt.broker import BrokerAddress
from msgnode.devices.mqtt.counters import MqttCounters
from msgnode.devices.mqtt.sensors import SensorFeed, SensorTopic


class Connection:
    """A node that gives these answers, one after another: a code, or an error."""

    def __init__(self, *answers: int | NodeError) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []

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


async def claimed(monkeypatch: pytest.MonkeyPatch, connection: Connection, *urls: str) -> Any:
    monkeypatch.setattr(sensors, "_CLAIM_AGAIN", 0.0)
    counters = MqttCounters()
    topic = SensorTopic(1, "t/+", "iot://localhost/{1}", "value")
    opener: Any = None
    address: BrokerAddress = None  # type: ignore[assignment]
    feed = SensorFeed(topic, "localhost", address, "node", opener, counters, lambda: None)
    node: Any = connection
    feed._session.connection = node
    for url in urls:
        feed._enter(url)
    assert feed._claiming is not None
    await asyncio.wait_for(feed._claiming, 10)
    return counters


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
