"""A broker of tests that says what it is told to, true or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from msgnode.devices.mqtt.broker import Broker, BrokerAccess, BrokerEvents
from msgnode.devices.mqtt.broker_client import BrokerAddress
from msgnode.devices.mqtt.counters import MqttCounters
from msgnode.devices.mqtt.delivery import Delivery

ACCEPTED = bytes((0x20, 3, 0, 0, 0))
CONNECT, SUBSCRIBE, PUBLISH, PUBACK = 0x10, 0x82, 0x32, 0x40


def subscribed(code: int = 1) -> bytes:
    """The answer to the first subscription of a connection."""
    return bytes((0x90, 4, 0, 1, 0, code))


def message(number: int, is_repeated: bool = False) -> bytes:
    """An empty message of QoS 1 on the topic `a`."""
    return bytes((0x3A if is_repeated else 0x32, 6, 0, 1)) + b"a" + number.to_bytes(2) + b"\0"


class LyingBroker:
    """Answers by the first byte of what it hears.

    `downs` are the reasons that the node was told, `acknowledged` the messages it has acknowledged;
    `ours` is its connection.
    """

    def __init__(self, greeting: bytes, subscribed: bytes) -> None:
        self.answers = {CONNECT: greeting, SUBSCRIBE: subscribed}
        self.acknowledged: list[int] = []
        self.downs: list[str] = []
        self.ours: Broker
        self.counters = MqttCounters()
        self.news = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError, OSError):
            while said := await reader.read(65536):
                writer.write(self.answers.get(said[0], b""))
                for at in range(len(said) - 3):
                    if said[at] == PUBACK and said[at + 1] in (2, 3, 4):
                        self.acknowledged.append(int.from_bytes(said[at + 2 : at + 4]))
                self.news.set()
        writer.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this is so, which it may become with what the node says."""
        async with asyncio.timeout(30):
            while not holds():
                self.news.clear()
                await self.news.wait()

    def down(self, why: str) -> None:
        self.downs.append(why)
        self.news.set()


@asynccontextmanager
async def lying_broker(
    words: bytes, receive: Callable[[Delivery], None], greeting: bytes = ACCEPTED
) -> AsyncIterator[LyingBroker]:
    """Such a broker, which says `words` to who has subscribed, and a node's connection to it."""
    broker = LyingBroker(greeting, words)
    async with await asyncio.start_server(broker.serve, "127.0.0.1", 0) as server:
        address = BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1], window=10)
        events = BrokerEvents(receive, broker.news.set, broker.down, broker.news.set)
        access = BrokerAccess(address, "node", broker.counters, lambda: True)
        broker.ours = Broker(access, ("a",), events)
        job = asyncio.create_task(broker.ours.run())
        yield broker
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
