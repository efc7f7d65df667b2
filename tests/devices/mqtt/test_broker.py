"""The connection to the broker: who may have it, and what a broker may say that lies."""

from __future__ import annotations

import asyncio
import threading

import pytest

from msgnode.core.back_off import BackOff
from msgnode.devices.mqtt import broker as broker_module
from msgnode.devices.mqtt import broker_client
from msgnode.devices.mqtt.broker import Broker, BrokerAccess, BrokerEvents
from msgnode.devices.mqtt.broker_client import BrokerAddress, BrokerClient, NotTaken
from msgnode.devices.mqtt.counters import MqttCounters
from msgnode.devices.mqtt.delivery import Delivery
from tests.devices.mqtt.lying_broker import PUBACK, PUBLISH, lying_broker, message, subscribed
from tests.node import eventually

IGNORED = BrokerEvents(lambda delivery: None, lambda: None, lambda why: None, lambda: None)


async def test_a_worker_whose_lease_has_run_out_does_not_end_its_successors_connection() -> None:
    came = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.close()

    seen: list[bool] = []

    def holds_lease() -> bool:
        seen.append(came.is_set())
        return len(seen) == 3

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        address = BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        broker = Broker(BrokerAccess(address, "node", MqttCounters(), holds_lease), (), IGNORED)
        job = asyncio.create_task(broker.run())
        async with asyncio.timeout(30):
            await came.wait()
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
    assert seen[:3] == [False, False, False]


async def test_many_connections_that_are_not_answered_keep_no_thread_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    monkeypatch.setattr(BrokerClient, "_client_connect", lambda self: released.wait(60))
    jobs = []
    for number in range(40):  # more than the event loop has threads of its own
        address = BrokerAddress("192.0.2.1", 1883)
        access = BrokerAccess(address, f"{number}", MqttCounters(), lambda: True)
        broker = Broker(access, ("a",), IGNORED)
        jobs.append(asyncio.create_task(broker.run()))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await asyncio.to_thread(int)
    for job in jobs:
        job.cancel()
    released.set()
    await asyncio.gather(*jobs, return_exceptions=True)


async def test_a_subscription_that_the_broker_refuses_is_told() -> None:
    async with lying_broker(subscribed(0x87), lambda delivery: None) as broker:
        await broker.until(lambda: bool(broker.downs))
        assert broker.downs == ["it refuses the subscription of a: Not authorized"]


async def test_a_message_at_which_the_node_fails_keeps_no_other_back() -> None:
    def fail(delivery: Delivery) -> None:
        raise RuntimeError("at each of them")

    words = subscribed() + message(1) + message(2)
    async with lying_broker(words, fail) as broker:
        await broker.until(lambda: len(broker.acknowledged) == 2)
        assert broker.acknowledged == [1, 2]
        assert broker.counters.refused == 2


@pytest.mark.parametrize("is_repeated", [False, True])
async def test_a_broker_that_sends_more_than_it_may_of_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, is_repeated: bool
) -> None:
    monkeypatch.setattr(broker_client, "MAX_BYTES", 50_000)
    taken: list[Delivery] = []
    words = subscribed() + message(1)
    words += b"".join(message(1 if is_repeated else n, is_repeated) for n in range(2, 1_000))
    async with lying_broker(words, taken.append) as broker:
        await broker.until(lambda: bool(broker.downs))
        assert "more at once" in broker.downs[0]
        assert len(taken) < 100


async def test_a_broker_that_answers_pings_and_acknowledges_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waits for what was published would wait for good, and no alarm would say so."""
    monkeypatch.setattr(broker_client, "ACKNOWLEDGED_SECONDS", 0.1)
    monkeypatch.setattr(broker_client, "_LOOKS_EVERY", 0.01)
    async with lying_broker(subscribed(), lambda delivery: None) as broker:
        await broker.until(lambda: broker.ours.has_room)
        broker.ours.publish("b", b"x", lambda why: None)
        await broker.until(lambda: bool(broker.downs))
        assert "acknowledged nothing" in broker.downs[0]


async def test_what_waits_counts_until_it_is_done_of_either_quality(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_client, "MAX_BYTES", 4_000)
    taken: list[Delivery] = []
    unsure = bytes((0x30, 4, 0, 1)) + b"a\0"
    async with lying_broker(subscribed() + message(1) + 4 * unsure, taken.append) as broker:
        await broker.until(lambda: len(taken) >= 1)
        async with asyncio.timeout(30):
            while len(taken) < 5:
                await eventually()
        seen = []
        for delivery in taken:
            seen.append(delivery.client.is_filling)
            delivery.done()
        assert seen == [True, True, False, False, False]
        assert not broker.downs


async def test_a_connection_that_does_not_last_is_made_again_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(broker_module, "_FIRST_PAUSE", 0.001)

    class Noted(BackOff):
        def failed(self) -> float:
            pauses.append(super().failed())
            return pauses[-1]

    monkeypatch.setattr(broker_module, "BackOff", Noted)
    # it is accepted and subscribed, and then hears what no broker may say
    words = subscribed() + b"\xf0\0"
    async with lying_broker(words, lambda delivery: None) as broker:
        await broker.until(lambda: len(broker.downs) >= 8)
        assert pauses[7] >= 0.064, "half of 0.001 s, doubled seven times"


async def test_what_the_broker_does_not_take_is_told_and_counted() -> None:
    told: list[str] = []
    at_most = bytes((0x20, 8, 0, 0, 5, 0x27)) + (1_000).to_bytes(4)
    refusal = bytes((PUBACK, 4, 0, 2, 0x87, 0))
    async with lying_broker(subscribed(), lambda delivery: None, at_most) as broker:
        await broker.until(lambda: broker.ours.has_room)
        with pytest.raises(NotTaken, match="1000 bytes"):
            broker.ours.publish("b", b"x" * 1_000, told.append)
        broker.answers[PUBLISH] = refusal
        broker.ours.publish("b", b"x", told.append)
        await broker.until(lambda: bool(told))
        assert told == ["Not authorized"]
        assert (broker.counters.published, broker.counters.not_taken) == (0, 1)
