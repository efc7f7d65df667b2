"""Varied traffic: 100 sessions and 10,000 hyperties say what `bench.traffic_mix` has them say.

Two ways to drive it. *Windows*: so many messages are under way at any time; the rate is what the
server makes of them. *Open loop*: messages are due at random times of a fixed rate, whether the
server keeps up or not, and a message's time runs from when it was due, so that a pause of the
server is felt by all that were due in it. Beside both, sessions come and go.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from time import perf_counter
from typing import Any

import msgspec

from bench.traffic_mix import SESSIONS, Plan, addresses_of, plans
from bench.wire import LoadSocket, frame

from .clock import measure, percentile, until
from .runtimes import open_session, runtime_url

_GUESTS_EVERY = 0.05  # seconds between two sessions that come and go
_TICK = 0.0001  # seconds between two looks at what is due
_PATIENCE = 5.0
_READ = b'"type":"read"'
_RESPONSE = b'"type":"response"'


class _Read(msgspec.Struct):
    id: int
    to: str
    from_: str = msgspec.field(name="from")


class VariedLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._sockets: list[LoadSocket] = []
        self._plans: dict[tuple[str, int], Iterator[Plan]] = {}
        self._next_id = 1_000_000
        self._under_way: dict[int, list[Any]] = {}  # id -> when due, how many hear, is a request
        self._times: list[float] = []
        self._request_times: list[float] = []
        self._frames = 0
        self._refill = False
        self._guests = 0
        self._open_to_guests = False

    async def run(
        self,
        mix: str,
        size: int,
        seconds: float,
        window: int = 0,
        rate: float = 0.0,
        tokens: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """One sample, by `window` or by `rate`.

        Returns:
            Messages a second that all heard and answered; how long that took, requests to
            components apart; what was under way at the end, and what never came.
        """
        if not self._sockets:
            await self._open(tokens)
        self._source = self._plans.setdefault((mix, size), plans(mix, size, len(self._plans)))
        self._times, self._request_times, self._under_way = [], [], {}
        self._open_to_guests = True
        guests = asyncio.create_task(self._come_and_go(tokens))
        clock = None
        try:
            if rate:
                clock = _Clock(partial(self._send_due, rate, Random(self._next_id)))
                self._due, self._sent = perf_counter(), 0
            else:
                self._refill = True
                for _ in range(window):
                    self._send(perf_counter())
            began = self._frames
            sample = await measure(self._count, seconds, self._server_pid)
            frames = self._frames - began
        finally:
            self._refill = False
            if clock is not None:
                clock.close()
            self._open_to_guests = False  # not cancelled: `wait_for` may swallow that
            await guests
        behind = len(self._under_way)
        await until(lambda: not self._under_way, _PATIENCE)
        shares = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}
        told = {
            prefix + name: percentile(times, share) * 1e6
            for prefix, times in (
                ("", sorted(self._times)),
                ("request_", sorted(self._request_times)),
            )
            for name, share in shares.items()
        }
        lost = len(self._under_way)
        return {**sample, **told, "frames": frames / seconds, "behind": behind, "lost": lost}

    def _count(self) -> int:
        return len(self._times) + len(self._request_times)

    async def _open(self, tokens: Sequence[str] | None) -> None:
        for session in range(SESSIONS):
            token = tokens[session] if tokens else ""
            name, held = f"varied-{session}", addresses_of(session)
            socket, _ = await open_session(self._port, name, held, token)
            socket.on_text = partial(self._heard, socket)
            self._sockets.append(socket)

    def _send(self, due: float) -> None:
        plan = next(self._source)
        self._next_id = id_ = self._next_id + 1
        self._under_way[id_] = [due, plan.heard, plan.is_request]
        content = b"%b%d%b" % (plan.head, id_, plan.tail)
        self._sockets[plan.session].transport.write(frame(content))

    def _heard(self, socket: LoadSocket, content: bytes) -> None:
        """A frame has come: a message is there, is to be answered, or was answered."""
        self._frames += 1
        at = content.find(b'"id":') + 5
        id_ = int(content[at : min(_end(content, b",", at), _end(content, b"}", at))])
        waiting = self._under_way.get(id_)
        if waiting is None:
            return
        if _READ in content[:400] and _RESPONSE not in content[:400]:
            self._answer(socket, content)
            return
        waiting[1] -= 1
        if waiting[1]:
            return
        del self._under_way[id_]
        now = perf_counter()
        (self._request_times if waiting[2] else self._times).append(now - waiting[0])
        if self._refill:
            self._send(now)

    def _answer(self, socket: LoadSocket, content: bytes) -> None:
        read = msgspec.json.decode(content, type=_Read)
        response = {
            "id": read.id, "type": "response", "from": read.to, "to": read.from_,
            "body": {"code": 200, "value": read.to},
        }  # fmt: skip
        socket.transport.write(frame(msgspec.json.encode(response)))

    def _send_due(self, rate: float, random: Random) -> None:
        now = perf_counter()
        while self._due <= now:
            self._send(self._due)
            self._due += random.expovariate(rate)

    async def _come_and_go(self, tokens: Sequence[str] | None) -> None:
        while self._open_to_guests:
            await asyncio.sleep(_GUESTS_EVERY)
            self._guests += 1
            name = f"guest-{self._guests}"
            token = tokens[self._guests % len(tokens)] if tokens else ""
            address = f"hyperty://localhost/{name}"
            socket, _ = await open_session(self._port, name, [address], token)
            await socket.ask(id=3, type="close", from_=runtime_url(name), to="mn:/session")
            socket.close()


class _Clock:
    """Calls back every `_TICK`, with a timer of the system: the loop's own are of whole ms."""

    def __init__(self, tick: Any) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._file = libc.timerfd_create(1, os.O_NONBLOCK)  # CLOCK_MONOTONIC
        every = (0, int(_TICK * 1e9))
        libc.timerfd_settime(self._file, 0, struct.pack("llll", *every, *every), None)
        self._tick = tick
        asyncio.get_running_loop().add_reader(self._file, self._due)

    def _due(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._file, 8)
            self._tick()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        os.close(self._file)


def _end(content: bytes, mark: bytes, start: int) -> int:
    found = content.find(mark, start)
    return found if found >= 0 else len(content)
