"""Endings: sessions that open while as many close, and sessions that expire together, beside a pair
that goes on talking.

The pair sends a message every few milliseconds, whether the last one has come or not: what the node
does meanwhile shows as the time that they are under way.
"""

from __future__ import annotations

import asyncio
import http.client
from time import perf_counter
from typing import Any

from bench.processes import cpu_seconds
from bench.wire import LoadSocket, message

from .clock import percentile
from .runtimes import AT_ONCE, open_runtimes, runtime_url

_PACE = 0.005
_PATIENCE = 120.0


class Bystanders:
    """Two sessions that talk; `times` are how long each message was under way."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._sent: dict[int, float] = {}
        self._sender: LoadSocket

    async def open(self, port: int) -> None:
        names = ("bystander-1", "bystander-2")
        addresses = {name: [f"hyperty://localhost/{name}"] for name in names}
        self._sender, receiver = await open_runtimes(port, addresses)
        receiver.on_text = self._received

    def _received(self, text: bytes) -> None:
        number = int(text[6 : text.index(b",")])
        self.times.append(perf_counter() - self._sent.pop(number))

    async def talk(self) -> None:
        """Until cancelled."""
        number = 0
        while True:
            number += 1
            self._sent[number] = perf_counter()
            self._sender.transport.write(
                message(
                    id=number,
                    type="update",
                    from_="hyperty://localhost/bystander-1",
                    to="hyperty://localhost/bystander-2",
                    body={"value": "still here"},
                )
            )
            await asyncio.sleep(_PACE)

    def sample(self) -> dict[str, float]:
        """What was seen since the last sample; a message still under way counts as long as it has
        been."""
        now = perf_counter()
        times = sorted([*self.times, *(now - sent for sent in self._sent.values())])
        self.times.clear()
        return {
            "bystander_p50_ms": percentile(times, 0.5) * 1e3,
            "bystander_p99_ms": percentile(times, 0.99) * 1e3,
            "bystander_worst_ms": times[-1] * 1e3 if times else 0.0,
        }


class EndingsLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._pid = server_pid
        self._bystanders = Bystanders()
        self._held: list[LoadSocket] = []
        self._turn = 0

    async def run(self, sessions: int, grace: float = 0.0) -> dict[str, Any]:
        """So many sessions close while as many open, or expire, their sockets gone, after `grace`
        seconds: the node's setting."""
        if not self._turn:
            await self._bystanders.open(self._port)
        self._turn += 1
        talking = asyncio.ensure_future(self._bystanders.talk())
        try:
            if grace:
                return await self._expire(sessions, grace)
            return await self._close_and_open(sessions)
        finally:
            talking.cancel()

    async def _close_and_open(self, sessions: int) -> dict[str, Any]:
        if not self._held:
            self._held = await self._open(sessions, "first")
        waiting = await self._connected(sessions)
        urls = [self._name(number, str(self._turn)) for number in range(sessions)]
        self._bystanders.sample()
        cpu, began = cpu_seconds(self._pid), perf_counter()
        answers = []
        for old, new, url in zip(self._held, waiting, urls, strict=True):
            opens = new.ask(id=1, type="open", from_=runtime_url(url), to="mn:/session")
            answers.append(asyncio.ensure_future(opens))
            old.transport.write(message(id=9, type="close", to="mn:/session"))
        times: list[float] = []
        for answer in answers:
            answer.add_done_callback(lambda _: times.append(perf_counter() - began))
        await asyncio.gather(*answers)
        self._held = waiting
        await asyncio.sleep(max(0.0, 2.0 - (perf_counter() - began)))
        used = cpu_seconds(self._pid) - cpu
        return {
            "last_answer_s": times[-1],
            "in_1_s": sum(each <= 1.0 for each in times),
            "cpu_ms_each": used / sessions * 1e3,
            **self._bystanders.sample(),
        }

    async def _expire(self, sessions: int, grace: float) -> dict[str, Any]:
        others = await asyncio.to_thread(_sessions, self._port)
        sockets = await self._open(sessions, f"expires-{self._turn}")
        await asyncio.sleep(2.0)
        idle = cpu_seconds(self._pid)
        await asyncio.sleep(2.0)
        idle = (cpu_seconds(self._pid) - idle) / 2.0
        self._bystanders.sample()
        began, cpu = perf_counter(), cpu_seconds(self._pid)
        for socket in sockets:
            socket.close()
        await asyncio.sleep(grace - 1.0)
        lost = cpu_seconds(self._pid) - cpu - idle * (perf_counter() - began)
        dropped = self._bystanders.sample()
        began, cpu = perf_counter(), cpu_seconds(self._pid)
        while await asyncio.to_thread(_sessions, self._port) > others:
            if perf_counter() - began > _PATIENCE:
                raise TimeoutError("the sessions do not expire")
            await asyncio.sleep(0.5)
        before = 0.0  # what goes on after the last has left memory counts as well
        while cpu_seconds(self._pid) - before > 0.3 + idle and perf_counter() - began < _PATIENCE:
            before = cpu_seconds(self._pid)
            await asyncio.sleep(1.0)
        used = cpu_seconds(self._pid) - cpu - idle * (perf_counter() - began)
        return {
            "socket_lost_cpu_ms_each": lost / sessions * 1e3,
            "socket_lost_p99_ms": dropped["bystander_p99_ms"],
            "ended_cpu_ms_each": used / sessions * 1e3,
            **self._bystanders.sample(),
        }

    async def _open(self, number: int, name: str) -> list[LoadSocket]:
        return await open_runtimes(
            self._port, {self._name(each, name): [] for each in range(number)}
        )

    async def _connected(self, number: int) -> list[LoadSocket]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one() -> LoadSocket:
            async with turns:
                return await LoadSocket.connect(self._port)

        return list(await asyncio.gather(*(one() for _ in range(number))))

    def _name(self, number: int, of: str) -> str:
        return f"ending-{of}-{number}"


def _sessions(port: int) -> int:
    """How many sessions the node has, by its metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(_METRIC))


_METRIC = "msgnode_sessions{"
