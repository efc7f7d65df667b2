"""Sensors behind an MQTT broker, at a fixed rate; one runtime observes all their objects."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import aiomqtt

from bench.processes import cpu_seconds
from bench.wire import LoadSocket

from .runtimes import open_session

SENSORS = 100
_TICK = 0.01
_UNDER_WAY = 2_000
_LATE = 60.0  # seconds for what was held back
_NODELAY = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]


class SensorsLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._observer: LoadSocket | None = None
        self._heard = 0

    async def run(self, broker: int, rate: int, seconds: float) -> dict[str, Any]:
        """So many readings a second at QoS 1; what was heard of them, and what the node used."""
        if self._observer is None:
            objects = [f"context://localhost/s{n}/changes" for n in range(SENSORS)]
            self._observer, _ = await open_session(self._port, "observer", objects)
            self._observer.on_frames = self._received
        async with aiomqtt.Client(
            "127.0.0.1", broker, identifier="sensors", protocol=aiomqtt.ProtocolVersion.V5,
            max_inflight_messages=_UNDER_WAY, socket_options=_NODELAY,
        ) as client:  # fmt: skip
            await client.publish("sensors/s0/t", b"0", qos=1)  # its object is claimed
            await asyncio.sleep(1.0)
            self._heard = 0
            began, used = time.monotonic(), cpu_seconds(self._server_pid)
            sent = await self._publish(client, rate, seconds)
            publishing = time.monotonic() - began
            at_the_end = self._heard
            limit = time.monotonic() + _LATE
            while self._heard < sent and time.monotonic() < limit:  # noqa: ASYNC110  (counts)
                await asyncio.sleep(0.05)
            took, cpu = time.monotonic() - began, cpu_seconds(self._server_pid) - used
        return {
            "rate": self._heard / took,
            "offered": sent / publishing,
            "lost": sent - self._heard,
            "held_back": sent - at_the_end,
            "server_cpu": cpu / took,
            "us_per_update": cpu / max(self._heard, 1) * 1e6,
            "seconds": took,
        }

    async def _publish(self, client: aiomqtt.Client, rate: int, seconds: float) -> int:
        """Paced, not waiting for single acknowledgements; then for all of them."""
        paho = client._client
        began = time.monotonic()
        sent = 0
        while (passed := time.monotonic() - began) < seconds:
            while sent < passed * rate:
                paho.publish(f"sensors/s{sent % SENSORS}/t", b"%d" % sent, 1)
                sent += 1
            await asyncio.sleep(_TICK)
        await client.publish("done", b"", qos=1, timeout=_LATE)
        return sent

    def _received(self, frames: int) -> None:
        self._heard += frames
