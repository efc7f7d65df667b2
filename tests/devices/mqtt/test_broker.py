"""The connection to the broker: who may have it."""

from __future__ import annotations

import asyncio

from msgnode.devices.mqtt.broker import Broker, BrokerAddress
from msgnode.devices.mqtt.counters import MqttCounters


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
        broker = Broker(
            address, "node", (), lambda delivery: None, lambda: None, lambda why: None,
            lambda: None, MqttCounters(), holds_lease,
        )  # fmt: skip
        job = asyncio.create_task(broker.run())
        async with asyncio.timeout(30):
            await came.wait()
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
    assert seen[:3] == [False, False, False]
