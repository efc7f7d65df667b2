"""Relay: pairs of sessions; each sender keeps `window` messages under way to its receiver.

The receiver's frame lets the sender go on, inside this process: what is timed is the way of one
message through the server. Messages go from one hyperty to another; their value is `size` bytes of
session description, because text that repeats one letter flatters or punishes searches in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle
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
        self._frames: Iterator[bytes] = iter(())
        receiver.on_frames = self._received

    def start(self, frames: Sequence[bytes], window: int) -> None:
        self._frames = cycle(frames)
        self.is_running = True
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
    _group = ""

    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._pairs: list[Pair] = []

    async def run(
        self,
        pairs: int,
        window: int,
        size: int,
        seconds: float,
        tokens: Sequence[str] | None = None,
        identities: Sequence[dict[str, Any]] | None = None,
        ids: int = 1,
        group: str = "",
    ) -> dict[str, Any]:
        """One sample: rate, time under way, messages lost. Where they are given, sessions log in
        with their pair's token, and messages carry their pair's identity. `ids` is how many
        different ids the messages of a pair have. `group` keeps the names apart of those that
        another generator has at the same node."""
        self._group = group
        await self._open(pairs, tokens)
        used = self._pairs[:pairs]
        for number, pair in enumerate(used):
            pair.times.clear()
            pair.start(self._frames(number, size, identities, ids), window)
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

    async def _open(self, number: int, tokens: Sequence[str] | None) -> None:
        missing = range(len(self._pairs), number)
        ends = []
        for side, port in (("sender", self._port), ("receiver", self._receivers_port())):
            wanted = {self._name(side, each): [self._hyperty(side, each)] for each in missing}
            logins = {self._name(side, each): tokens[each] for each in missing} if tokens else {}
            ends.append(await open_runtimes(port, wanted, logins))
        self._pairs += [Pair(*each) for each in zip(*ends, strict=True)]

    def _frames(
        self, number: int, size: int, identities: Sequence[dict[str, Any]] | None, ids: int
    ) -> list[bytes]:
        whole = fields(self._hyperty("sender", number), self._hyperty("receiver", number), size)
        if identities is not None:
            whole["body"]["identity"] = identities[number]
        return [message(id=number + 1_000 * each, **whole) for each in range(ids)]

    def _receivers_port(self) -> int:
        return self._port

    def _name(self, side: str, number: int) -> str:
        return f"{side}-{number}{self._group}"

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


def fields(sender: str, to: str, size: int) -> dict[str, Any]:
    """The message of a pair."""
    return {"type": "update", "from_": sender, "to": to, "body": {"value": text(size)}}
