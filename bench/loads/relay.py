"""Relay: pairs of sessions; each sender keeps `window` messages under way to its receiver.

The receiver's frame lets the sender go on, inside this process: what is timed is the way of one
message through the server. Messages go from one hyperty to another; their value is `size` bytes of
session description, because text that repeats one letter flatters or punishes searches in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle
from time import perf_counter
from typing import Any

from bench.wire import LoadSocket, message

from .asking import opened
from .clock import measure, percentile, until
from .runtimes import open_runtimes, text


class Pair:
    """A sender, a receiver and what is under way between them."""

    def __init__(self, sender: LoadSocket, receiver: LoadSocket) -> None:
        self.count = 0
        self.is_running = False
        self.under_way: deque[float] = deque()
        self.times: list[float] = []
        self.receiver = receiver
        self._write = sender.transport.write
        self._frames: Iterator[bytes] = iter(())
        receiver.on_frames = self._received

    def start(self, frames: Sequence[bytes], window: int) -> None:
        self._frames = cycle(frames)
        self.is_running = window > 0
        for _ in range(window):
            self._send()

    def _send(self) -> None:
        self.under_way.append(perf_counter())
        self._write(next(self._frames))

    def _received(self, number: int) -> None:
        now = perf_counter()
        self.count += number
        for _ in range(number):
            self.times.append(now - self.under_way.popleft())
        if self.is_running:
            for _ in range(number):
                self._send()


class RelayLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._pairs: list[Pair] = []

    async def run(
        self,
        pairs: int,
        size: int,
        seconds: float,
        window: int = 0,
        ids: int = 1,
        rate: float = 0.0,
    ) -> dict[str, Any]:
        """One sample: rate, time under way, messages lost.

        Args:
            pairs: how many.
            size: of a message's value, in bytes.
            seconds: for how long.
            window: messages of a pair that are under way; 0 with a `rate`.
            ids: how many different ids the messages of a pair have.
            rate: messages per second of all pairs, whatever the server makes of them.
        """
        await self._open(pairs)
        used = self._pairs[:pairs]
        for number, pair in enumerate(used):
            pair.times.clear()
            pair.start(self._frames(number, size, ids), window)
        sending = asyncio.create_task(_send(used, rate)) if rate else None
        try:
            sample = await measure(
                lambda: sum(pair.count for pair in used), seconds, self._server_pid
            )
        finally:
            if sending is not None:
                sending.cancel()
        for pair in used:
            pair.is_running = False
        return {**sample, **await _how_it_went(used)}

    async def _open(self, number: int) -> None:
        missing = range(len(self._pairs), number)
        ends = []
        for side, port in (("sender", self._port), ("receiver", self._receivers_port())):
            wanted = {self._name(side, each): [self._hyperty(side, each)] for each in missing}
            ends.append(await open_runtimes(port, wanted))
        self._pairs += [Pair(*each) for each in zip(*ends, strict=True)]

    def _frames(self, number: int, size: int, ids: int = 1) -> list[bytes]:
        whole = fields(self._hyperty("sender", number), self._hyperty("receiver", number), size)
        return [message(id=number + 1_000 * each, **whole) for each in range(ids)]

    def _receivers_port(self) -> int:
        return self._port

    def _name(self, side: str, number: int) -> str:
        return f"{side}-{number}"

    def _hyperty(self, side: str, number: int) -> str:
        return f"hyperty://localhost/{self._name(side, number)}"


class AcrossLoad(RelayLoad):
    """The same from one worker of a node to another, which listens on the port `to`."""

    _to = 0

    async def run(self, to: int, **load: Any) -> dict[str, Any]:  # type: ignore[override]
        """One sample."""
        self._to = to
        return await super().run(**load)

    def _receivers_port(self) -> int:
        return self._to

    def _name(self, side: str, number: int) -> str:
        return f"{side}-{number}-across"


class LinkedLoad(RelayLoad):
    """Updates of objects to runtimes of the same node, or of that of another domain.

    Such an update, unlike other messages, is not owed an answer.
    """

    async def run(  # type: ignore[override]
        self, to: int, pid: int, domains: tuple[str, str], **load: Any
    ) -> dict[str, Any]:
        """One sample, also of the processor that a message costs here, and at the process `pid`.

        Args:
            to: the port of the receivers' node.
            pid: of that node's process.
            domains: of senders and receivers.
            load: as of any relay.
        """
        self._ends = {"sender": (self._port, domains[0]), "receiver": (to, domains[1])}
        await self._open(load["pairs"])
        there = asyncio.create_task(measure(lambda: 0, load["seconds"], pid))
        sample = await super().run(**load)
        used = {"cpu_us": sample["server_cpu"], "cpu_us_there": (await there)["server_cpu"]}
        return {**sample, **{name: 1e6 * each / sample["rate"] for name, each in used.items()}}

    async def _open(self, number: int) -> None:
        for each in range(len(self._pairs), number):
            ends = []
            for side, (port, domain) in self._ends.items():
                address = self._hyperty(side, each)
                ends.append(await opened(port, domain, self._name(side, each), domain, address))
            self._pairs.append(Pair(*ends))

    def _name(self, side: str, number: int) -> str:
        sender, receiver = (domain for _, domain in self._ends.values())
        return f"{side}-{number}-from-{sender}-to-{receiver}"

    def _hyperty(self, side: str, number: int) -> str:
        return f"comm://{self._ends[side][1]}/{self._name(side, number)}/children/one"


def fields(sender: str, to: str, size: int) -> dict[str, Any]:
    """The message of a pair."""
    return {"type": "update", "from_": sender, "to": to, "body": {"value": text(size)}}


# --- so many messages a second --------------------------------------------------------------------

_EVERY = 0.01  # seconds between two bursts


async def _send(pairs: list[Any], rate: float) -> None:
    began, sent, turn = perf_counter(), 0, cycle(pairs)
    while True:
        await asyncio.sleep(_EVERY)
        due = int((perf_counter() - began) * rate)
        for _ in range(due - sent):
            next(turn)._send()
        sent = due


async def _how_it_went(pairs: list[Any]) -> dict[str, Any]:
    """Times under way, and messages lost, once nothing more comes."""
    await until(lambda: not any(pair.under_way for pair in pairs), 3.0)
    times = sorted(time for pair in pairs for time in pair.times)
    return {
        "p50_us": percentile(times, 0.5) * 1e6,
        "p99_us": percentile(times, 0.99) * 1e6,
        "lost": sum(len(pair.under_way) for pair in pairs),
    }
