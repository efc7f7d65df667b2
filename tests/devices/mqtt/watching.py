"""The node at a broker, seen from outside: its state, its numbers, its alarms; and who talks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiomqtt

from tests.client import Client, runtime
from tests.devices.mqtt.broker import Mosquitto
from tests.node import Node, eventually

OBJECT = "context://localhost/"
LIMIT = 60.0


def add_topic(node: Node, **row: object) -> None:
    """A row, as the console writes it."""
    node.manage(
        "shell",
        "-c",
        "from msgnode.models import MqttTopic; from msgnode.storage.control import post; "
        f"MqttTopic.objects.create(**{row!r}); post('mqtt.topics')",
    )


def change_topics(node: Node, **row: object) -> None:
    """All rows, as the console changes them."""
    node.manage(
        "shell",
        "-c",
        "from msgnode.models import MqttTopic; from msgnode.storage.control import post; "
        f"MqttTopic.objects.update(**{row!r}); post('mqtt.topics')",
    )


@asynccontextmanager
async def talker(node: Node) -> AsyncIterator[Client]:
    async with node.ws() as client:
        yield await client.open(runtime())


def state_of(node: Node) -> str:
    """What the connector says of itself."""
    try:
        body = json.loads(node.text("/health/ready"))
    except OSError:  # it begins again
        return ""
    state: str = body.get("connectors", {}).get("mqtt", "")
    return state


def number_of(node: Node, name: str) -> float:
    """A number of the metrics, of all workers together."""
    lines = node.text("/metrics").splitlines()
    return sum(float(each.split()[-1]) for each in lines if each.startswith(name))


def is_served(node: Node, topics: int = 1) -> bool:
    """Whether the broker sends what comes, frames of devices and readings of a sensor topic: what
    was published before a node has subscribed for the first time is for nobody."""
    if number_of(node, "msgnode_mqtt_topics") < topics:
        return False
    return state_of(node) in ("connected", "standby")


async def health(node: Node) -> str:
    """What the connector says of itself."""
    return await asyncio.to_thread(state_of, node)


async def refused(node: Node) -> float:
    """How many messages were refused."""
    return await asyncio.to_thread(number_of, node, "msgnode_mqtt_refused_total")


async def until_served(node: Node) -> None:
    """Wait until it is served, by whichever worker."""
    async with asyncio.timeout(LIMIT):
        while not await asyncio.to_thread(is_served, node):
            await eventually()


async def until_state(node: Node, *states: str) -> str:
    async with asyncio.timeout(LIMIT):
        while (state := await health(node)) not in states:
            await eventually()
    return state


def standing(node: Node) -> str:
    """The alarms that stand, with their texts."""
    return str(node.rows("SELECT kind, text FROM msgnode_alarm WHERE cleared_at IS NULL"))


async def until_alarm(node: Node, words: str, stands: bool = True) -> None:
    """Wait until an alarm stands, or none does any more: they are written beside the work."""
    async with asyncio.timeout(LIMIT):
        while (words in await asyncio.to_thread(standing, node)) is not stands:
            await eventually()


async def say_numbers(broker: Mosquitto, topic: str, number: int, again: int = 0) -> None:
    """Publish so many numbers in order, until the last was acknowledged.

    What was not acknowledged is said again, to whichever broker is there then; and so many before
    it, for a broker that may forget those when it is killed.
    """
    said = 0
    while said < number:
        try:
            async with broker.client("numbers", timeout=2) as client:
                while said < number:
                    await client.publish(topic, str(said), qos=1)
                    said += 1
        except aiomqtt.MqttError:
            said = max(0, said - again)
            await eventually()


async def heard_up_to(client: Client, last: int) -> list[int]:
    """The values of updates, up to this one."""
    values: list[int] = []
    while not values or values[-1] != last:
        values.append((await client.expect(type="update"))["body"]["value"])
    return values
