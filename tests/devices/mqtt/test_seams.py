"""What a broker, a device or a worker may do to the connector: end, freeze, flood, lie."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from tests.client import SM, Client, code
from tests.devices.mqtt.broker import Mosquitto, mosquitto, thing
from tests.devices.mqtt.watching import (
    LIMIT,
    OBJECT,
    add_topic,
    health,
    heard_up_to,
    number_of,
    refused,
    say_numbers,
    talker,
    until_alarm,
    until_served,
    until_state,
)
from tests.e2e.pair import Pair
from tests.node import Node, eventually


@pytest.mark.long
async def test_case_28_a_broker_ended_and_started_under_traffic_loses_nothing_acknowledged(
    start_node: Callable[..., Node], tmp_path: Path
) -> None:
    with mosquitto(tmp_path / "broker") as broker:
        node = start_node(MQTT_URL=broker.url)
        add_topic(node, topic="n/+", object=OBJECT + "{1}", attribute="n")
        async with talker(node) as client, asyncio.TaskGroup() as group:
            await client.subscribe(f"{OBJECT}one/changes")
            await until_served(node)
            asked = group.create_task(answered_once(broker, client))
            said = group.create_task(say_numbers(broker, "n/one", 3000))
            for _ in range(2):
                await client.expect(type="update")
                await asyncio.to_thread(broker.stop, signal.SIGTERM)
                await until_state(node, "away")
                await until_alarm(node, "mqtt-broker-away")
                await asyncio.to_thread(broker.start)
                await until_state(node, "connected")
            await said
            values = await heard_up_to(client, 2999)
            # a publisher that lost its acknowledgement says a number again, so some come twice
            assert sorted({*values, *range(values[0])}) == list(range(3000))
            assert await asked
        await until_alarm(node, "mqtt-broker-away", stands=False)


async def answered_once(broker: Mosquitto, client: Client) -> bool:
    """A device asks once and again while the broker comes and goes; each answer comes once."""
    seen: list[Any] = []
    for number in range(20):
        async with asyncio.timeout(60):
            while True:
                try:
                    async with thing(broker, "asker") as device:
                        answer = await device.ask("read", SM, id_=f"{number}")
                        seen.append(answer["id"])
                        break
                except (aiomqtt.MqttError, AssertionError):
                    await eventually()
    return len(seen) == len(set(seen)) == 20


@pytest.mark.long
async def test_a_broker_that_is_frozen_is_noticed_and_one_that_wakes_is_served_again(
    start_node: Callable[..., Node], tmp_path: Path
) -> None:
    with mosquitto(tmp_path / "broker") as broker:
        node = start_node(MQTT_URL=broker.url)
        await until_state(node, "connected")
        async with talker(node) as client, thing(broker, "lamp") as lamp:
            await lamp.ask("read", SM)
            broker.send_signal(signal.SIGSTOP)
            for number in range(3):
                await client.send("create", lamp.runtime_url, {"value": number})
                assert code(await client.ask("read", SM)) == 400  # the node is not held up
            await until_state(node, "away")
            assert node.get("/health/ready") == 200
            broker.send_signal(signal.SIGCONT)
            await until_state(node, "connected")
            heard = {(await lamp.receive())["body"].get("value")}
            while not heard >= {0, 1, 2}:  # some may come twice
                heard.add((await lamp.receive())["body"].get("value"))


@pytest.mark.long
async def test_case_30_a_flood_is_held_back_and_the_node_lives(
    start_node: Callable[..., Node], tmp_path: Path
) -> None:
    """Twelve times as much as may be carried a second, of both kinds."""
    with mosquitto(tmp_path / "broker") as broker:
        node = start_node(MQTT_URL=broker.url, MQTT_MESSAGES_PER_SECOND=500)
        add_topic(node, topic="n/+", object=OBJECT + "{1}", attribute="n")
        async with talker(node) as client, broker.client("flood") as flood:
            await client.subscribe(f"{OBJECT}kept/changes")
            await until_served(node)
            paho = flood._client
            for number in range(3_000):
                paho.publish("n/lost", str(number), 0)
            for number in range(1_500):
                paho.publish("n/kept", str(number), 1)
            assert code(await client.ask("read", SM)) == 400
            async with asyncio.timeout(60):
                values = await heard_up_to(client, 1_499)
            assert values == list(range(1_500)), "something of QoS 1 was lost, or out of order"


@pytest.mark.long
async def test_a_device_that_was_sent_more_than_may_wait_is_reached_again(
    start_node: Callable[..., Node], tmp_path: Path
) -> None:
    """It says nothing of its own: a lamp, which stays connected to the broker."""
    with mosquitto(tmp_path / "broker") as broker:
        node = start_node(MQTT_URL=broker.url, OUTBOX_BYTES=20_000)
        await until_state(node, "connected")
        async with talker(node) as client, thing(broker, "lamp") as lamp:
            await lamp.ask("read", SM)
            broker.send_signal(signal.SIGSTOP)  # or it might be as fast
            for _ in range(3):  # more than the link and the queue take
                await client.send("create", lamp.runtime_url, {"value": "x" * 70_000})
            await until_alarm(node, "gap")
            broker.send_signal(signal.SIGCONT)
            await client.send("create", lamp.runtime_url, {"value": "after"})
            values = [(await lamp.receive())["body"].get("value")]
            while values[-1] != "after":
                values.append((await lamp.receive())["body"].get("value"))
            assert "gap" in values


@pytest.mark.long
async def test_a_command_that_was_on_its_way_when_the_broker_died_is_answered(
    start_node: Callable[..., Node], tmp_path: Path
) -> None:
    with mosquitto(tmp_path / "broker") as broker:
        node = start_node(MQTT_URL=broker.url)
        add_topic(
            node, topic="n/+", object=OBJECT + "{1}", attribute="n", command_topic="n/{1}/set"
        )
        await until_served(node)
        async with talker(node) as client, broker.client("oven") as sensor:
            await sensor.publish("n/oven", b"20", qos=1)
            async with asyncio.timeout(LIMIT):
                while code(await client.ask("read", f"{OBJECT}oven")) != 200:
                    await eventually()
            broker.send_signal(signal.SIGSTOP)
            asked = await client.send("update", f"{OBJECT}oven", {"value": 180})
            assert code(await client.ask("read", SM)) == 400  # what came before was carried
            broker.send_signal(signal.SIGKILL)
            assert code(await client.answer(asked)) == 504, "it may have been published"


@pytest.mark.long
@pytest.mark.parametrize("qos", [0, 1])
async def test_a_device_whose_large_frames_wait_ends_no_connection_of_others(
    served: Node, broker: Mosquitto, qos: int
) -> None:
    """A hundred may wait, which are more bytes than the node keeps of all devices together."""
    lost = await asyncio.to_thread(number_of, served, "msgnode_mqtt_lost_connections_total")
    async with talker(served) as reader, thing(broker, f"large-{qos}") as large:
        reader.socket.transport.pause_reading()
        frame = {"id": 0, "type": "update", "from": large.runtime_url, "to": reader.runtime_url}
        text = json.dumps({**frame, "body": {"value": "x" * 900_000}})
        for _ in range(120):
            await large.client.publish(f"{large.base}/out", text, qos=qos)
        async with thing(broker, "small") as small:
            assert code(await small.ask("read", SM)) == 400
        reader.cut()
    found = await asyncio.to_thread(number_of, served, "msgnode_mqtt_lost_connections_total")
    assert found == lost


async def test_hostile_topics_and_payloads_are_counted_and_touch_no_other(
    served: Node, broker: Mosquitto
) -> None:
    before = await refused(served)
    async with thing(broker, "good") as good, broker.client("bad") as bad:
        for topic in ("x" * 200, "..", "a b", "ä", "%2e"):
            await bad.publish(f"rethink/localhost/{topic}/out", b"{}", qos=1)
        await bad.publish("rethink/localhost/bad/out", b"x" * 1_000_000, qos=1)
        await bad.publish("rethink/localhost/bad/out", b"\xff\xfe", qos=1)
        await bad.publish("rethink/localhost/bad/out", b"[" * 100_000, qos=1)
        await bad.publish("rethink/localhost/bad/status", b"x" * 1_000_000, qos=1)
        await bad.publish(f"sensors/{'x' * 60_000}/t", b'{"data": {"celsius": 1}}', qos=1)
        await bad.publish(f"sensors/{'x' * 600}/t", b'{"data": {"celsius": 1}}', qos=1)
        for payload in (b"", b"no", b'{"data": 1}', b"[" * 100_000, b"\xff"):
            await bad.publish("sensors/kitchen/t", payload, qos=1)
        assert code(await good.ask("read", SM)) == 400
        async with asyncio.timeout(20):
            while await refused(served) < before + 5 + 6:
                await eventually()
    assert await health(served) == "connected"


@pytest.mark.long
async def test_a_broker_that_is_none_is_away_and_harms_nobody(
    start_node: Callable[..., Node],
) -> None:
    """One that answers a megabyte of anything, and one that sends more than it may."""
    greeting = bytes((0x20, 3, 0, 0, 0))
    subscribed = bytes((0x90, 4, 0, 1, 0, 1))
    one = bytes((0x32, 8, 0, 1)) + b"a" + b"\0\1" + b"\0" + b"xy"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        met.append(len(met))
        if len(met) % 2:
            writer.write(greeting + subscribed + one * 10_000)
        else:
            writer.write(b"\xff" * 1_000_000)
        await reader.read()
        writer.close()

    met: list[int] = []
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        node = await asyncio.to_thread(start_node, MQTT_URL=f"mqtt://127.0.0.1:{port}")
        async with asyncio.timeout(LIMIT):
            while len(met) < 2:
                await eventually()
        await until_state(node, "away")
        async with talker(node) as client:
            assert code(await client.ask("read", SM)) == 400
        server.close()


@pytest.mark.long
@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
async def test_one_worker_serves_the_broker_and_another_takes_over_with_nothing_lost(
    tmp_path: Path, template: Path, redis_url: str, ends: signal.Signals
) -> None:
    name = f"until-{uuid.uuid4().hex}"  # nobody else's in the Redis that tests share
    shutil.copy(template, tmp_path / "node.sqlite3")
    with mosquitto(tmp_path / "broker") as broker:
        pair = Pair(tmp_path, REDIS_URL=redis_url, MQTT_URL=broker.url)
        async with pair.running():
            add_topic(pair.one, topic="n/+", object=OBJECT + "{1}", attribute="n")
            await until_served(pair.one)
            states = [
                await until_state(each, "connected", "standby") for each in (pair.one, pair.other)
            ]
            assert sorted(states) == ["connected", "standby"]
            owner, other = (
                (pair.one, pair.other) if states[0] == "connected" else (pair.other, pair.one)
            )
            client = await pair.come(other)
            await client.subscribe(f"{OBJECT}{name}/changes")
            async with asyncio.TaskGroup() as group, thing(broker, "lamp") as lamp:
                await lamp.ask("read", SM)
                said = group.create_task(say_numbers(broker, f"n/{name}", 1500))
                await client.expect(type="update")
                os_signal(owner, ends)
                await until_state(other, "connected")
                await said
                values = await heard_up_to(client, 1499)
                missing = set(range(values[0], 1500)) - set(values)
                # what the dead worker had acknowledged and not handed on is a gap, and told
                assert not missing or ends is not signal.SIGTERM
                await client.send("create", lamp.runtime_url, {"value": "to the new one"})
                while (await lamp.receive())["body"].get("value") != "to the new one":
                    pass
                if ends is signal.SIGSTOP:
                    os_signal(owner, signal.SIGCONT)
                    await until_state(owner, "standby")
                    assert await health(other) == "connected"


def os_signal(node: Node, number: signal.Signals) -> None:
    os.kill(node.pid, number)
