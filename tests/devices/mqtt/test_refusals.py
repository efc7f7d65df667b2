"""What the broker does not take, and what keeps the frames of one device from being carried: told
to who waits for it, counted, and nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.client import SM, code
from tests.devices.mqtt.broker import Mosquitto, mosquitto, thing
from tests.devices.mqtt.watching import (
    LIMIT,
    add_topic,
    change_topics,
    is_served,
    number_of,
    refused,
    talker,
)
from tests.node import Node, eventually, running
from tests.waiting import until

MAY_ALL_BUT_COMMANDS = "topic readwrite rethink/#\ntopic readwrite sensors/+/t\n"
CONNECTIONS = 4


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A broker that takes no long packets, and no commands."""
    place = tmp_path_factory.mktemp("strict")
    (place / "acl").write_text(MAY_ALL_BUT_COMMANDS)
    with mosquitto(place, f"acl_file {place / 'acl'}", "max_packet_size 20000") as shared:
        yield shared


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, template: Path, strict: Mosquitto
) -> Iterator[Node]:
    with running(
        tmp_path_factory.mktemp("node"), template, MQTT_URL=strict.url,
        MQTT_WINDOW=10, MAX_CONNECTIONS_PER_SOURCE=CONNECTIONS,
    ) as shared:  # fmt: skip
        add_topic(shared, topic="sensors/+/t", object="context://localhost/{1}",
                  attribute="temperature", command_topic="sensors/{1}/set")  # fmt: skip
        until(lambda: is_served(shared), LIMIT, shared.log)
        yield shared


async def count(node: Node, name: str) -> float:
    return await asyncio.to_thread(number_of, node, f"msgnode_mqtt_{name}_total")


async def test_a_command_that_the_broker_refuses_is_not_answered_200(
    node: Node, strict: Mosquitto
) -> None:
    async with talker(node) as client, strict.client("oven") as sensor:
        async with asyncio.timeout(LIMIT):  # a test before may have changed the row
            while code(await client.ask("read", "context://localhost/oven")) == 404:
                await sensor.publish("sensors/oven/t", b"20", qos=1)
                await eventually()
        told = (await client.ask("update", "context://localhost/oven", {"value": 180}))["body"]
        assert told["code"] == 503
        assert "Not authorized" in told["description"]
        assert await count(node, "not_taken") >= 1


async def test_a_frame_longer_than_the_broker_takes_ends_no_connection(
    node: Node, strict: Mosquitto
) -> None:
    lost, not_taken = await count(node, "lost_connections"), await count(node, "not_taken")
    async with talker(node) as client, thing(strict, "lamp") as lamp:
        assert code(await lamp.ask("read", SM)) == 400
        told = await client.ask("read", lamp.runtime_url, {"value": "x" * 30_000})
        assert (told["from"], code(told)) == (lamp.runtime_url, 503)
        await client.send("create", lamp.runtime_url, {"value": "short"})
        assert (await lamp.receive())["body"]["value"] == "short"
    assert await count(node, "not_taken") == not_taken + 1
    assert await count(node, "lost_connections") == lost


@pytest.mark.parametrize("tail", ["/" * 250, "x" * 10_000, "\ud7ff"])
async def test_a_response_topic_that_brokers_do_not_take_is_refused(
    node: Node, strict: Mosquitto, tail: str
) -> None:
    lost = await count(node, "lost_connections")
    async with thing(strict, "odd") as odd:
        asked = Properties(PacketTypes.PUBLISH)
        asked.ResponseTopic = f"{odd.base}/{tail}"
        frame = {"id": 1, "type": "read", "from": odd.runtime_url, "to": SM}
        await odd.client.publish(f"{odd.base}/out", json.dumps(frame), qos=1, properties=asked)
        told = await odd.receive()
        assert "response topic" in told["body"]["description"]
        assert code(await odd.ask("read", SM, id_=2)) == 400
    assert await count(node, "lost_connections") == lost


async def test_a_device_that_finds_no_room_is_told_and_holds_up_no_other(
    node: Node, strict: Mosquitto
) -> None:
    async with thing(strict, "lamp") as lamp, thing(strict, "odd") as odd:
        await lamp.ask("read", SM)
        await odd.ask("read", SM)
        async with thing(strict, "third") as third:
            await third.ask("read", SM)
            async with thing(strict, "fourth") as fourth:
                assert code(await fourth.ask("read", SM)) == 429
                for number in range(30):  # more than the broker sends unacknowledged
                    assert code(await lamp.ask("read", SM, id_=f"{number}")) == 400


async def test_a_retained_frame_is_carried_once_and_not_again_whenever_the_node_subscribes(
    node: Node, strict: Mosquitto
) -> None:
    async with strict.client("before") as before:
        frame = {"id": 1, "type": "read", "from": "runtime://localhost/lamp", "to": SM}
        topic = "rethink/localhost/lamp/out"
        for _ in range(2):
            await before.publish(topic, json.dumps(frame), qos=1, retain=True)
        number = await refused(node)
        async with strict.client("messaging-node-localhost-devices"):
            pass  # the node's connection has ended by this
        async with asyncio.timeout(LIMIT):
            while await refused(node) == number:
                await eventually()
        await before.publish(topic, b"", qos=1, retain=True)


async def test_what_an_earlier_topic_filter_has_asked_for_comes_no_more(
    node: Node, strict: Mosquitto
) -> None:
    async with strict.client("kitchen") as sensor:
        heard = await count(node, "received")
        await sensor.publish("sensors/kitchen/t", b"20", qos=1)
        async with asyncio.timeout(LIMIT):  # else it is taken for one of the other topic
            while await count(node, "received") == heard:
                await eventually()
        await asyncio.to_thread(change_topics, node, topic="rethink/other/+")
        async with asyncio.timeout(LIMIT):
            heard = await count(node, "received")
            while await count(node, "received") == heard:  # one at a time: none is behind another
                await sensor.publish("rethink/other/kitchen", b"20", qos=1)
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        while await count(node, "received") == heard:
                            await eventually()
        heard = await count(node, "received")
        for _ in range(3):
            await sensor.publish("sensors/kitchen/t", b"20", qos=1)
        await sensor.publish("rethink/other/kitchen", b"20", qos=1)
        async with asyncio.timeout(LIMIT):
            while await count(node, "received") == heard:
                await eventually()
        assert await count(node, "received") == heard + 1
        await asyncio.to_thread(change_topics, node, topic="sensors/+/t")
