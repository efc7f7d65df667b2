"""Devices and sensors behind a real broker, beside a runtime with a WebSocket."""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import quote

from tests.client import ALLOCATION, Client, code
from tests.devices.mqtt.broker import Mosquitto, thing
from tests.devices.mqtt.watching import talker
from tests.node import Node, eventually


async def is_there(client: Client, address: str) -> None:
    """Wait until somebody listens to an address."""
    async with asyncio.timeout(20):
        while code(await client.ask("read", address)) == 404:
            await eventually()


async def test_case_25_a_frame_of_a_device_is_delivered_and_one_in_anothers_name_refused(
    served: Node, broker: Mosquitto
) -> None:
    async with talker(served) as client, thing(broker, "lamp") as lamp:
        await lamp.send("create", client.runtime_url, {"value": 1})
        heard = await client.expect(type="create")
        assert (heard["from"], heard["body"]["value"]) == (lamp.runtime_url, 1)
        for other in ("runtime://localhost/never-seen", client.runtime_url):
            await lamp.send("create", client.runtime_url, id_=2, **{"from": other})
            refused = await lamp.receive()
            assert code(refused) == 403
        assert not [each for each in await client.settled() if each["type"] == "create"]


async def test_case_26_an_answer_arrives_without_waiting_for_the_network(
    served: Node, broker: Mosquitto
) -> None:
    async with thing(broker, "quick") as device:
        body = {"scheme": "comm", "value": {"number": 1}}
        answer = await device.ask("create", ALLOCATION, body)
        assert code(answer) == 200
        seconds = []
        for number in range(2, 32):
            began = time.perf_counter()
            await device.ask("read", "domain://msg-node.localhost/sm", id_=number)
            seconds.append(time.perf_counter() - began)
        assert min(seconds) < 0.04, "Nagle and delayed acknowledgements hold up each of them"


async def test_case_27_the_last_will_detaches_the_session_which_keeps_what_comes(
    served: Node, broker: Mosquitto
) -> None:
    async with talker(served) as client:
        async with thing(broker, "sleeper") as device:
            await device.send("create", client.runtime_url, {"value": "here"})
            await client.expect(type="create")
            device.cut()
            async with asyncio.timeout(20):
                while served.rows(STATE, "runtime://localhost/sleeper") != [("detached",)]:
                    await eventually()
            await client.send("create", device.runtime_url, {"value": "kept"})
        async with thing(broker, "sleeper") as device:
            assert (await device.receive())["body"]["value"] == "kept"


STATE = "SELECT state FROM msgnode_session WHERE runtime_url = ?"


async def test_case_29_a_sensor_updates_its_object_for_two_observers(
    served: Node, broker: Mosquitto
) -> None:
    async with talker(served) as one, talker(served) as other, broker.client("kitchen") as sensor:
        url = "context://localhost/kitchen"
        for each in (one, other):
            await each.subscribe(f"{url}/changes")
        await sensor.publish("sensors/kitchen/t", json.dumps({"data": {"celsius": 20}}), qos=1)
        for each in (one, other):
            heard = await each.expect(type="update")
            assert (heard["from"], heard["to"]) == (url, f"{url}/changes")
            assert heard["body"]["attribute"] == "temperature"
            assert heard["body"]["value"] == 20
        await is_there(one, url)
        told = (await one.ask("subscribe", f"{url}/subscription"))["body"]
        assert told["code"] == 200
        assert told["value"]["data"] == {"temperature": 20}
        assert told["value"]["schema"] == "https://localhost/schema/Temperature"


async def test_an_update_to_the_object_is_a_command_and_answered_when_the_broker_has_it(
    served: Node, broker: Mosquitto
) -> None:
    async with talker(served) as client, broker.client("oven") as sensor:
        await sensor.subscribe("sensors/oven/set", 1)
        await sensor.publish("sensors/oven/t", json.dumps({"data": {"celsius": 20}}), qos=1)
        await is_there(client, "context://localhost/oven")
        told = await client.ask("update", "context://localhost/oven", {"value": {"to": 180}})
        assert code(told) == 200, told
        async with asyncio.timeout(20):
            command = await anext(sensor.messages)
        assert json.loads(command.payload) == {"to": 180}


async def test_what_is_read_as_a_text_is_commanded_as_a_text_and_what_is_json_as_json(
    served: Node, broker: Mosquitto
) -> None:
    async with talker(served) as client, broker.client("lamps") as lamps:
        for name, reading, expected in (
            ("plain", b"on", b"off"),
            ("quoted", b'"on"', b'"off"'),
            ("an object's", b'{"state": "on"}', b'"off"'),
        ):
            await lamps.subscribe(f"relays/{name}/set", 1)
            await lamps.publish(f"relays/{name}/state", reading, qos=1)
            url = "context://localhost/relay-" + quote(name)
            await is_there(client, url)
            assert code(await client.ask("update", url, {"value": "off"})) == 200
            async with asyncio.timeout(20):
                assert (await anext(lamps.messages)).payload == expected, name


async def test_a_retained_message_that_is_cleared_is_no_reading_and_a_bad_field_costs_itself(
    served: Node, broker: Mosquitto
) -> None:
    async with talker(served) as client, broker.client("relay") as relay:
        url = "context://localhost/relay-cleared"
        await client.subscribe(f"{url}/changes")
        for payload in (b"on", b"", b'{"t":20,"h":nan,"n":"K\xfcche"}', b"off"):
            await relay.publish("relays/cleared/state", payload, qos=1, retain=True)
        values = [(await client.expect(type="update"))["body"]["value"] for _ in range(3)]
        assert values == ["on", {"t": 20, "h": None, "n": "K\ufffdche"}, "off"]
