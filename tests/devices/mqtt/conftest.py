"""A node that serves a broker: one for all tests here that need no settings of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.mqtt.broker import Mosquitto, mosquitto
from tests.devices.mqtt.watching import LIMIT, add_topic, is_served
from tests.node import Node, running
from tests.waiting import until


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as shared:
        yield shared


@pytest.fixture(scope="session")
def served(
    tmp_path_factory: pytest.TempPathFactory, template: Path, broker: Mosquitto
) -> Iterator[Node]:
    """A node at the broker, with two sensor topics: of readings in JSON, and of plain texts."""
    with running(tmp_path_factory.mktemp("served"), template, MQTT_URL=broker.url) as shared:
        add_topic(shared, topic="sensors/+/t", object="context://localhost/{1}",
                  attribute="temperature", path="data.celsius", command_topic="sensors/{1}/set",
                  schema="https://localhost/schema/Temperature")  # fmt: skip
        add_topic(shared, topic="relays/+/state", object="context://localhost/relay-{1}",
                  attribute="on", command_topic="relays/{1}/set")  # fmt: skip
        until(lambda: is_served(shared, topics=2), LIMIT, shared.log)
        yield shared
        assert shared.is_running(), shared.log()
