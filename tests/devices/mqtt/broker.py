"""A real mosquitto, and devices of tests at it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiomqtt

from msgnode.launch.pdeathsig import tie
from tests.client import LIMIT, Frame
from tests.services import free_port, needs_program
from tests.waiting import until

NODELAY = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]


class Mosquitto:
    """A broker that keeps what it has acknowledged over a restart, and takes all that comes."""

    def __init__(self, place: Path, *more: str, of_listener: bool = False) -> None:
        needs_program("mosquitto")
        self.port = free_port()
        self._place = place
        place.mkdir(parents=True, exist_ok=True)
        self._more = () if of_listener else more
        self._of_listener = more if of_listener else ()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> Mosquitto:
        lines = [
            f"listener {self.port} 127.0.0.1", *self._of_listener,
            "allow_anonymous true", "persistence true",
            f"persistence_location {self._place}/", "max_queued_messages 0",
            "max_queued_bytes 0", "set_tcp_nodelay true", *self._more,
        ]  # fmt: skip
        if os.geteuid() == 0:
            lines.append("user root")
        config = self._place / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["mosquitto", "-c", str(config)], stdout=log, stderr=log,
                preexec_fn=lambda: tie(signal.SIGKILL),
            )  # fmt: skip

        def answers() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return True
            return False

        until(answers, LIMIT, (self._place / "log").read_text, every=0.02)
        return self

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it; SIGTERM lets it write down what it keeps."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(LIMIT)

    def client(self, name: str, **options: Any) -> aiomqtt.Client:
        options.setdefault("protocol", aiomqtt.ProtocolVersion.V5)
        return aiomqtt.Client(
            "127.0.0.1", self.port, identifier=name, socket_options=NODELAY, **options
        )


@contextmanager
def mosquitto(place: Path, *more: str, of_listener: bool = False) -> Iterator[Mosquitto]:
    """A broker with further lines of configuration, which may be those of its listener."""
    broker = Mosquitto(place, *more, of_listener=of_listener)
    try:
        yield broker.start()
    finally:
        broker.stop(signal.SIGKILL)


class Thing:
    """A device at the broker."""

    def __init__(self, client: aiomqtt.Client, name: str) -> None:
        self.client = client
        self.name = name
        self.runtime_url = f"runtime://localhost/{name}"
        self.base = f"rethink/localhost/{name}"

    async def say(self, status: str) -> None:
        await self.client.publish(f"{self.base}/status", status, qos=1, retain=True)

    async def send(self, type_: str, to: str, body: Any = None, id_: Any = 1, **more: Any) -> None:
        frame = {"id": id_, "type": type_, "from": self.runtime_url, "to": to, "body": body or {}}
        await self.client.publish(f"{self.base}/out", json.dumps({**frame, **more}), qos=1)

    def cut(self) -> None:
        """Lose the connection without a word, as a network does."""
        found = self.client._client.socket()
        assert isinstance(found, socket.socket)
        found.shutdown(socket.SHUT_RDWR)

    async def receive(self) -> Frame:
        """The next frame to the device."""
        async with asyncio.timeout(LIMIT):
            message = await anext(self.client.messages)
        frame: Frame = json.loads(message.payload)
        return frame

    async def ask(self, type_: str, to: str, body: Any = None, id_: Any = 1, **more: Any) -> Frame:
        await self.send(type_, to, body, id_, **more)
        while True:
            frame = await self.receive()
            if frame["type"] == "response" and frame["id"] == id_:
                return frame


@asynccontextmanager
async def thing(broker: Mosquitto, name: str, comes: bool = True) -> AsyncIterator[Thing]:
    """A device with a last will, which has said that it is online."""
    base = f"rethink/localhost/{name}"
    will = aiomqtt.Will(f"{base}/status", "offline", 1, True)
    async with broker.client(name, will=will) as client:
        await client.subscribe(f"{base}/in", 1)
        device = Thing(client, name)
        if comes:
            await device.say("online")
        yield device
