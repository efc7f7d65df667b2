"""MQTT 5's requests: response topic, correlation data and expiry; and TLS to the broker."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.certificates import certificate
from tests.client import LIMIT, SM, code
from tests.devices.mqtt.broker import Mosquitto, Thing, mosquitto, thing
from tests.devices.mqtt.watching import (
    talker,
    until_alarm,
    until_state,
)
from tests.node import Node


def asks(**said: Any) -> Properties:
    """Properties of a request."""
    properties = Properties(PacketTypes.PUBLISH)
    for name, value in said.items():
        setattr(properties, name, value)
    return properties


async def request(device: Thing, id_: Any, to: str = SM, **said: Any) -> None:
    frame = {"id": id_, "type": "read", "from": device.runtime_url, "to": to, "body": {}}
    await device.client.publish(
        f"{device.base}/out", json.dumps(frame), qos=1, properties=asks(**said)
    )


async def heard(device: Thing) -> tuple[str, dict[str, Any], Any]:
    """Topic, frame and properties of what comes next."""
    async with asyncio.timeout(LIMIT):
        message = await anext(device.client.messages)
    return str(message.topic), json.loads(message.payload), message.properties


async def answer_to(device: Thing, id_: str) -> dict[str, Any]:
    """What a request is answered, whatever else comes before."""
    while True:
        _, frame, _ = await heard(device)
        if frame["id"] == id_:
            return frame


async def test_a_response_goes_to_its_response_topic_with_the_correlation_data(
    served: Node, broker: Mosquitto
) -> None:
    async with thing(broker, "asks") as device:
        await device.client.subscribe(f"{device.base}/answers/+", 1)
        place = f"{device.base}/answers/1"
        await request(device, 1, ResponseTopic=place, CorrelationData=b"\x00one")
        topic, frame, said = await heard(device)
        assert (topic, frame["id"], frame["type"]) == (place, 1, "response")
        assert said.CorrelationData == b"\x00one"
        await request(device, 1)  # the same id, and no place for its response
        topic, frame, said = await heard(device)
        assert (topic, frame["id"]) == (f"{device.base}/in", 1)
        assert not hasattr(said, "CorrelationData")


async def test_a_response_of_a_runtime_goes_there_too_and_lasts_no_longer_than_the_request(
    served: Node, broker: Mosquitto
) -> None:
    async with talker(served) as client, thing(broker, "patient") as device:
        await device.client.subscribe(f"{device.base}/answers", 1)
        place = f"{device.base}/answers"
        await request(
            device, "x", client.runtime_url, ResponseTopic=place, MessageExpiryInterval=300
        )
        asked = await client.expect(type="read")
        await client.send("response", device.runtime_url, {"code": 200}, id=asked["id"])
        topic, frame, said = await heard(device)
        assert (topic, frame["body"]["code"]) == (place, 200)
        assert 200 <= said.MessageExpiryInterval <= 300


async def test_more_correlation_data_than_the_node_keeps_is_refused(
    served: Node, broker: Mosquitto
) -> None:
    """It is kept for each request, of a hundred requests of each device."""
    async with thing(broker, "keeps") as device:
        place = f"{device.base}/in"
        await request(device, "long", ResponseTopic=place, CorrelationData=b"x" * 1_025)
        assert "Correlation" in (await answer_to(device, "long"))["body"]["description"]
        await request(device, "good", ResponseTopic=place, CorrelationData=b"x" * 1_024)
        _, frame, said = await heard(device)
        assert (frame["id"], said.CorrelationData) == ("good", b"x" * 1_024)


@pytest.mark.long
async def test_a_request_whose_time_is_over_before_its_turn_is_answered_504(
    served: Node, broker: Mosquitto
) -> None:
    """It waits in the node, behind frames for a runtime that reads nothing, not at the broker."""
    async with talker(served) as reader, thing(broker, "late") as device:
        reader.socket.transport.pause_reading()
        frame = {"id": 0, "type": "update", "from": device.runtime_url, "to": reader.runtime_url}
        text = json.dumps({**frame, "body": {"value": "x" * 800_000}})
        for _ in range(14):
            await device.client.publish(f"{device.base}/out", text, qos=1)
        await request(device, "late", MessageExpiryInterval=2)
        assert code(await answer_to(device, "late")) == 504
        await request(device, "next")
        assert code(await answer_to(device, "next")) != 504
        reader.cut()


@pytest.mark.parametrize("place", ["rethink/localhost/other/in", "sensors/kitchen/set", "a/+"])
async def test_a_response_topic_of_somebody_else_is_refused_and_nothing_is_published_there(
    served: Node, broker: Mosquitto, place: str
) -> None:
    async with thing(broker, "sly") as device, broker.client("victim") as victim:
        await victim.subscribe("rethink/localhost/other/in", 1)
        await victim.subscribe("sensors/kitchen/set", 1)
        try:
            await request(device, 1, ResponseTopic=place)
        except aiomqtt.MqttError:
            return  # the broker itself takes no wildcard there
        topic, frame, _ = await heard(device)
        assert (topic, code(frame)) == (f"{device.base}/in", 400)
        await victim.publish("sensors/kitchen/set", "the last", qos=1)
        async with asyncio.timeout(LIMIT):
            message = await anext(victim.messages)
        assert message.payload == b"the last"


@pytest.mark.long
async def test_a_broker_is_reached_by_tls_and_one_of_another_authority_is_not(
    start_node: Callable[..., Node], tmp_path: Path
) -> None:
    for name in ("ours", "others"):
        (tmp_path / name).mkdir()
        certificate(tmp_path / name)
    ours = tmp_path / "ours"
    lines = (f"certfile {ours}/fullchain.pem", f"keyfile {ours}/key.pem")
    with mosquitto(tmp_path / "broker", *lines, of_listener=True) as broker:
        url = f"mqtts://localhost:{broker.port}"
        node = start_node(MQTT_URL=url, MQTT_CA_FILE=ours / "fullchain.pem")
        await until_state(node, "connected")
        tls = ssl.create_default_context(cafile=str(ours / "fullchain.pem"))
        async with talker(node) as client, aiomqtt.Client(
            "localhost", broker.port, identifier="lamp", tls_context=tls,
            protocol=aiomqtt.ProtocolVersion.V5,
        ) as lamp:  # fmt: skip
            device = Thing(lamp, "lamp")
            await device.send("create", client.runtime_url, {"value": "over TLS"})
            assert (await client.expect(type="create"))["body"]["value"] == "over TLS"
        stranger = start_node(MQTT_URL=url, MQTT_CA_FILE=tmp_path / "others" / "fullchain.pem")
        await until_state(stranger, "away")
        assert stranger.get("/health/ready") == 200
        await until_alarm(stranger, "certificate verify failed")
