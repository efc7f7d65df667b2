"""Relay: pairs of sessions; each sender keeps `window` messages under way to its receiver.

The receiver's frame lets the sender go on, inside this process: what is timed is the way of one
message through the server. Messages go from one hyperty to another; their value is `size` bytes of
session description, because text that repeats one letter flatters or punishes searches in it.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import Any

from bench.wire import LoadSocket, message

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
        self._frame = b""
        receiver.on_frames = self._received

    def start(self, frame: bytes, window: int) -> None:
        self._frame = frame
        self.is_running = True
        for _ in range(window):
            self._send()

    def _send(self) -> None:
        self.under_way.append(perf_counter())
        self._write(self._frame)

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
        self._pairs: dict[int, list[Pair]] = {}  # by the port of the receivers, 0 for our own

    async def run(
        self,
        pairs: int,
        window: int,
        size: int,
        seconds: float,
        token: str = "",
        identity: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One sample: rate, time under way, messages lost. Sessions log in with `token`, each
        message carries `identity`, if they are given."""
        await self._open(pairs, token)
        used = self._pairs[:pairs]
        for number, pair in enumerate(used):
            pair.times.clear()
            pair.start(self._frame(number, size, identity), window)
        sample = await measure(lambda: sum(pair.count for pair in used), seconds, self._server_pid)
        for pair in used:
            pair.is_running = False
        await until(lambda: not any(pair.under_way for pair in used), 3.0)
        times = sorted(time for pair in used for time in pair.times)
        lost = sum(len(pair.under_way) for pair in used)
        return {
            **sample,
            "p50_us": percentile(times, 0.5) * 1e6,
            "p99_us": percentile(times, 0.99) * 1e6,
            "lost": lost,
        }

    async def _open(self, number: int, to: int) -> None:
        pairs = self._pairs.setdefault(to, [])
        missing = range(len(pairs), number)
        ends = []
        for side, port in (("sender", self._port), ("receiver", to or self._port)):
            names = [_name(side, each, to) for each in missing]
            wanted = {name: [f"hyperty://localhost/{name}"] for name in names}
            ends.append(await open_runtimes(port, wanted))
        pairs += [Pair(*each) for each in zip(*ends, strict=True)]


def _name(side: str, number: int, to: int) -> str:
    return f"{side}-{number}-{to}" if to else f"{side}-{number}"


def _frame(number: int, size: int, to: int = 0) -> bytes:
    return message(
        id=number,
        type="update",
        from_=f"hyperty://localhost/{_name('sender', number, to)}",
        to=f"hyperty://localhost/{_name('receiver', number, to)}",
        body={"value": text(size)},
    )
