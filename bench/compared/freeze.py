"""One of two workers is stopped for longer than its lease, and goes on: what its sockets, its
sessions and who sends to them see, of each version."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import msgspec

from bench.figures import PartResult, Sample
from bench.loads.clock import until
from bench.loads.runtimes import ALLOCATION, runtime_url
from bench.plan import Plan
from bench.processes import Server
from bench.wire import LoadSocket, message

from .versions import Version, started

LEASE, FROZEN = 3.0, 12.0
LIMIT = 15.0
"""Seconds after it goes on; what has not come by then has not come."""
RUNTIMES = 10
ASKED_AT = (1.0, 6.0)
"""Seconds after it was stopped; once more when it serves again, or LIMIT is over."""
_LAST_ANSWERS = 3.0
_TRY = 1.0


def freeze(plan: Plan, versions: Sequence[Version]) -> PartResult:
    """All versions at once, because most of it is waiting."""
    title = f"Stopped {FROZEN:.0f} s with a lease of {LEASE:.0f} s, seconds after it goes on"
    result = PartResult("freeze", title, unit="s", headline="fenced_s")
    workers = [
        version.servers.make_pair(version.redis, version.database, WORKER_TIMEOUT=f"{LEASE:g}")
        for version in versions
    ]
    for _ in range(plan.rounds):
        samples = asyncio.run(_round(workers))
        for version, sample in zip(versions, samples, strict=True):
            result.case("stopped and gone on", version.name).samples.append(sample)
            plan.say(f"stopped and gone on, {version.name}: {sample}")
    return result


async def _round(workers: Sequence[tuple[Server, Server]]) -> list[Sample]:
    return list(await asyncio.gather(*(_measure(*pair) for pair in workers)))


async def _measure(live: Server, stopped: Server) -> Sample:
    pair = started(live, stopped)
    await asyncio.to_thread(pair.__enter__)
    try:
        return await _stopped_and_gone_on(live, stopped)
    finally:
        live.kill()  # nothing is to be given away
        stopped.kill()
        await asyncio.to_thread(pair.__exit__, None, None, None)


async def _stopped_and_gone_on(live: Server, stopped: Server) -> Sample:
    asker = _Runtime("asker")
    await asker.open(live.port)
    caught = [_Runtime(f"caught-{each}") for each in range(RUNTIMES)]
    for each in caught:
        await each.open(stopped.port)
        each.returns_to = live.port
        if await asker.answer(asker.ask_runtime(each), _TRY) != 200:
            raise RuntimeError("Two workers do not hear each other before one is stopped.")
    asked: list[int] = []
    os.kill(stopped.pid, signal.SIGSTOP)
    began = perf_counter()
    try:
        for at in ASKED_AT:
            await asyncio.sleep(began + at - perf_counter())
            asked += [asker.ask_runtime(each) for each in caught]
        await asyncio.sleep(began + FROZEN - perf_counter())
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    woken = perf_counter()
    fenced, serving = await asyncio.gather(
        _time_until(lambda: all(each.code == 3001 for each in caught), woken),
        _serves_again(stopped, asker, woken),
    )
    asked += [asker.ask_runtime(each) for each in caught]
    await until(lambda: all(each in asker.answers for each in asked), _LAST_ANSWERS)
    silent = [
        id_ for id_ in asked if id_ not in asker.answers and not asker.asked[id_].has_heard_of_gap
    ]
    return {
        "fenced_s": fenced,
        "serving_s": serving,
        "asked": float(len(asked)),
        "answered": float(sum(asker.answers.get(id_) == 200 for id_ in asked)),
        "silent": float(len(silent)),
        "gaps": float(sum(each.has_heard_of_gap for each in caught)),
    }


async def _time_until(is_so: Callable[[], bool], since: float) -> float:
    await until(is_so, since + LIMIT - perf_counter())
    return perf_counter() - since


async def _serves_again(stopped: Server, asker: _Runtime, since: float) -> float:
    """Until a runtime that comes to the worker is given an address at which the other one's
    runtimes reach it."""
    tries = 0
    while (passed := perf_counter() - since) < LIMIT:
        tries += 1
        comes = _Runtime(f"comes-{tries}")
        try:
            async with asyncio.timeout(LIMIT - passed):
                await comes.open(stopped.port)
                if await asker.answer(asker.ask_runtime(comes), _TRY) == 200:
                    return perf_counter() - since
        except (OSError, ValueError, TimeoutError):
            await asyncio.sleep(0.05)
    return LIMIT


class _Runtime:
    """A runtime that answers what it is asked, and comes back when its socket is closed.

    Attributes:
        answers: the code of each answer, by the id of what was asked.
        asked: who was asked, by that id.
        code: with which its first socket was closed.
    """

    def __init__(self, name: str) -> None:
        self.url = runtime_url(f"{name}-{os.urandom(4).hex()}")
        self.address = ""
        self.answers: dict[int, int] = {}
        self.asked: dict[int, _Runtime] = {}
        self.has_heard_of_gap = False
        self.code = 0
        self.returns_to = 0
        self._token = ""
        self._ids = 100
        self._socket: LoadSocket
        self._returning: asyncio.Task[None] | None = None

    async def open(self, port: int) -> None:
        """Get a session and an address."""
        socket = await LoadSocket.connect(port)
        opened = await socket.ask(id=1, type="open", from_=self.url, to="mn:/session", body={})
        self._token = opened["runtimeToken"]
        body: dict[str, Any] = {"scheme": "hyperty", "value": {"number": 1}}
        given = await socket.ask(
            id=2, type="create", from_=f"{self.url}/registry", to=ALLOCATION, body=body
        )
        self.address = given["value"]["allocated"][0]
        self._use(socket)

    def ask_runtime(self, other: _Runtime) -> int:
        """Ask another runtime; the id of it."""
        self._ids += 1
        self.asked[self._ids] = other
        self._write(id=self._ids, type="read", from_=self.address, to=other.address, body={})
        return self._ids

    async def answer(self, id_: int, patience: float) -> int:
        """The code of an answer, 0 if there is none in time."""
        await until(lambda: id_ in self.answers, patience)
        return self.answers.get(id_, 0)

    def _use(self, socket: LoadSocket) -> None:
        self._socket = socket
        socket.on_text = self._heard
        socket.on_lost = self._lost

    def _write(self, **fields: Any) -> None:
        self._socket.transport.write(message(**fields))

    def _heard(self, text: bytes) -> None:
        said = msgspec.json.decode(text)
        if said["type"] == "response":
            self.answers[int(said["id"])] = said["body"].get("code", 0)
        elif said["type"] == "read":
            body = {"code": 200}
            to = said["from"]
            self._write(id=said["id"], type="response", from_=self.address, to=to, body=body)
        elif said["body"].get("value") == "gap":
            self.has_heard_of_gap = True

    def _lost(self) -> None:
        self.code = self.code or self._socket.close_code
        if self.returns_to and self._returning is None:
            self._returning = asyncio.ensure_future(self._return())

    async def _return(self) -> None:
        for _ in range(100):
            try:
                socket = await LoadSocket.connect(self.returns_to)
                socket.on_text = self._heard
                url = f"{self.url}/{self._token}"
                await socket.ask(id=3, type="re-open", from_=url, to="mn:/session")
            except (OSError, ValueError, TimeoutError):
                await asyncio.sleep(0.1)
            else:
                self._use(socket)
                return
