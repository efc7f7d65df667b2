"""Draining: a worker is told to stop while its sessions are talked to; all go to the other one.

Receivers are on the worker that stops, senders on the other. Every message carries its number, so
that what is lost, doubled or out of order is seen.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import msgspec

from bench.wire import LoadSocket, message

from .clock import until
from .runtimes import AT_ONCE, open_session, runtime_url

_SENDERS = 10
_PACE = 0.01  # seconds between two rounds of a sender
_PART = 20  # each round goes to one in so many of its receivers


class Receiver:
    """A session that comes back by itself. `numbers` are what came, in order."""

    def __init__(self, name: str, to: int, turns: asyncio.Semaphore) -> None:
        self.name = name
        self.numbers: list[int] = []
        self.sent = 0
        self.gaps = 0
        self.code = 0
        self.is_back = asyncio.Event()
        self.is_resumed = False
        self._to = to
        self._turns = turns
        self._token = ""
        self._socket: LoadSocket

    async def open(self, port: int) -> None:
        async with self._turns:
            socket, body = await open_session(port, self.name, [self.address])
        self._token = body["runtimeToken"]
        self._socket = socket
        socket.on_text = self._received
        socket.on_lost = self._lost

    @property
    def address(self) -> str:
        return f"hyperty://localhost/{self.name}"

    def _received(self, text: bytes) -> None:
        value = msgspec.json.decode(text)["body"]["value"]
        if value == "gap":
            self.gaps += 1
        else:
            self.numbers.append(value)

    def _lost(self) -> None:
        self.code = self._socket.close_code
        task = asyncio.ensure_future(self._return())
        task.add_done_callback(lambda _: self.is_back.set())

    async def _return(self) -> None:
        async with self._turns:
            socket = await LoadSocket.connect(self._to)
            url = f"{runtime_url(self.name)}/{self._token}"
            socket.on_text = self._received
            body = await socket.ask(id=1, type="re-open", from_=url, to="mn:/session")
        self._socket = socket
        self.is_resumed = "runtimeToken" not in body


class DrainingLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid

    async def run(self, sessions: int, to: int) -> dict[str, Any]:
        """Open so many sessions, stop the worker under traffic; `to` is the other worker's port."""
        turns = asyncio.Semaphore(AT_ONCE)
        receivers = [Receiver(f"leaving-{number}", to, turns) for number in range(sessions)]
        await asyncio.gather(*(each.open(self._port) for each in receivers))
        names = [f"stays-{number}" for number in range(_SENDERS)]
        senders = [(await open_session(to, name, []))[0] for name in names]
        enough = asyncio.Event()
        sending = asyncio.gather(
            *(
                _send(sender, runtime_url(name), receivers[at::_SENDERS], enough)
                for at, (sender, name) in enumerate(zip(senders, names, strict=True))
            )
        )
        await asyncio.sleep(1.0)
        began = time.perf_counter()
        os.kill(self._server_pid, signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*(each.is_back.wait() for each in receivers)), 60)
        seconds = time.perf_counter() - began
        enough.set()
        await sending
        await _until_whole(receivers)
        return {
            "seconds": seconds,
            "not_told": sum(each.code != 3001 for each in receivers),
            "not_resumed": sum(not each.is_resumed for each in receivers),
            "messages": sum(each.sent for each in receivers),
            "lost": sum(each.sent - len(set(each.numbers)) for each in receivers),
            "gaps": sum(each.gaps for each in receivers),
            "out_of_order": sum(each.numbers != sorted(set(each.numbers)) for each in receivers),
        }


async def _send(
    sender: LoadSocket, own: str, receivers: list[Receiver], enough: asyncio.Event
) -> None:
    turn = 0
    while not enough.is_set():
        for receiver in receivers[turn % _PART :: _PART]:
            body = {"value": receiver.sent}
            sender.transport.write(
                message(id=turn, type="update", from_=own, to=receiver.address, body=body)
            )
            receiver.sent += 1
        turn += 1
        await asyncio.sleep(_PACE)


async def _until_whole(receivers: list[Receiver]) -> None:
    """Until all that was sent has come, or nothing more does."""
    await until(lambda: all(each.sent <= len(each.numbers) for each in receivers), 5.0)
