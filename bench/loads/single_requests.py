"""The runs of the field's suites: one request an address, sent without waiting, each answered.

`echo` sends a runtime its own messages, which any relay can do; `allocate` asks for blocks of
addresses, and `deallocate` gives them back, one request a block; `one_by_one` does so waiting for
each answer; `subscribe` brings runtimes, each with a socket, a session and two subscriptions, 256
of them under way at a time: browsers open fewer, and more would measure the kernel's queues.
"""

from __future__ import annotations

import asyncio
import itertools
from time import perf_counter
from typing import Any

import msgspec

from bench.wire import LoadSocket, message

from .runtimes import ALLOCATION, open_runtimes, open_session, runtime_url

BLOCK = 3
WAIT = 120.0


class SingleRequestsLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._runs = itertools.count(1)

    async def run(self, number: int) -> dict[str, Any]:
        """Seconds that `number` requests of each kind take."""
        name = f"single-{next(self._runs)}"
        socket, _ = await open_session(self._port, name, [])
        url = runtime_url(name)
        echo = message(id=1, type="update", from_=url, to=url, body={"value": 1})
        create = {"scheme": "comm", "value": {"number": BLOCK}}
        sample = {"echo_s": (await _all(socket, [echo] * number))[0]}
        wanted = message(id=1, type="create", from_=url, to=ALLOCATION, body=create)
        sample["allocate_s"], answers = await _all(socket, [wanted] * number)
        sample["deallocate_s"], answers = await _all(socket, _deletions(url, answers))
        lost = sum(b'"code":200' not in answer for answer in answers)
        few = max(1, number // 10)
        _, answers = await _all(socket, [wanted] * few)
        sample["one_by_one_s"] = await _one_by_one(socket, _deletions(url, answers))
        socket.close()
        return {**sample, "lost": lost}


class EchoLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._runs = itertools.count(1)

    async def run(self, number: int) -> dict[str, Any]:
        """Seconds that as many messages to oneself take, sent together and one by one."""
        name = f"echo-{next(self._runs)}"
        socket, _ = await open_session(self._port, name, [])
        url = runtime_url(name)
        echo = message(id=1, type="update", from_=url, to=url, body={"value": 1})
        seconds, _ = await _all(socket, [echo] * number)
        few = [echo] * max(1, number // 10)
        sample = {"seconds": seconds, "one_by_one_s": await _one_by_one(socket, few)}
        socket.close()
        return sample


class SubscribersLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._runs = itertools.count(1)

    async def run(self, number: int) -> dict[str, Any]:
        """Seconds until as many runtimes that come together have subscribed."""
        run = next(self._runs)
        topics = [f"comm://localhost/{run}/changes", f"comm://localhost/{run}/children/name"]
        began = perf_counter()
        opened = await open_runtimes(
            self._port, {f"subscriber-{run}-{each}": topics for each in range(number)}
        )
        seconds = perf_counter() - began
        for socket in opened:
            socket.close()
        socket, _ = await open_session(self._port, f"after-{run}", [])  # behind their ends
        socket.close()
        return {"seconds": seconds}


async def _all(socket: LoadSocket, frames: list[bytes]) -> tuple[float, list[bytes]]:
    """Send all and read as many; seconds, and what came."""
    answers: list[bytes] = []
    done = asyncio.Event()

    def arrived(text: bytes) -> None:
        answers.append(text)
        if len(answers) == len(frames):
            done.set()

    socket.on_text = arrived
    began = perf_counter()
    socket.transport.writelines(frames)
    await asyncio.wait_for(done.wait(), WAIT)
    return perf_counter() - began, answers


async def _one_by_one(socket: LoadSocket, frames: list[bytes]) -> float:
    arrived = asyncio.Event()
    socket.on_text = lambda _: arrived.set()
    began = perf_counter()
    for frame in frames:
        arrived.clear()
        socket.transport.write(frame)
        await asyncio.wait_for(arrived.wait(), WAIT)
    return perf_counter() - began


def _deletions(url: str, answers: list[bytes]) -> list[bytes]:
    """A request for each block that was allocated."""
    return [
        message(id=1, type="delete", from_=url, to=ALLOCATION, body={"childrenResources": block})
        for block in (msgspec.json.decode(each)["body"]["value"]["allocated"] for each in answers)
    ]
