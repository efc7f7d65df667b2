"""Allocations of one session, one after another, beside sessions that speak as ever new addresses.

Each first use of an address is a change of who is where, which a worker may have to tell the
others; it is answered by nobody and committed nowhere.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from bench.wire import LoadSocket, message

from .clock import percentile
from .runtimes import ALLOCATION, open_runtimes, open_session, runtime_url

_SPEAKERS = 20
_TICK = (
    0.001  # so many come at once as arrive in it, as from runtimes that know nothing of each other
)


class FirstUsesLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._runs = itertools.count(1)
        self._used = 0

    async def run(
        self, rate: int, allocations: int, seconds: float, patience: float
    ) -> dict[str, Any]:
        """Allocate so often, beside `rate` first uses a second.

        It ends after `seconds`, or with an allocation that has no answer after `patience`, which
        then counts as one that took as long.
        """
        run = next(self._runs)
        speakers = await open_runtimes(
            self._port, {f"speaker-{run}-{each}": [] for each in range(_SPEAKERS)}
        )
        listener = f"hyperty://localhost/listener-{run}"
        sockets = [*speakers, (await open_session(self._port, f"listener-{run}", [listener]))[0]]
        name = f"allocator-{run}"
        asker = (await open_session(self._port, name, []))[0]
        sockets.append(asker)
        self._used = 0
        using = asyncio.create_task(self._use(speakers, listener, rate))
        await asyncio.sleep(0.5)
        took: list[float] = []
        unanswered = 0
        began, used = perf_counter(), self._used
        while len(took) < allocations and perf_counter() - began < seconds and not unanswered:
            asked = perf_counter()
            try:
                await asyncio.wait_for(_allocate(asker, name), patience)
            except TimeoutError:
                unanswered = 1
            took.append(1000 * (perf_counter() - asked))
        rate_reached = (self._used - used) / (perf_counter() - began)
        using.cancel()
        for socket in sockets:
            socket.close()
        took.sort()
        return {
            "p50_ms": percentile(took, 0.5),
            "p99_ms": percentile(took, 0.99),
            "answered": len(took) - unanswered,
            "unanswered": unanswered,
            "first_uses": rate_reached,
        }

    async def _use(self, speakers: Sequence[LoadSocket], to: str, rate: int) -> None:
        began, turns = perf_counter(), itertools.cycle(speakers)
        while rate:
            for _ in range(int((perf_counter() - began) * rate) - self._used):
                sender = f"hyperty://localhost/{uuid.uuid4()}"
                frame = message(id=1, type="update", from_=sender, to=to, body={"value": "used"})
                next(turns).transport.write(frame)
                self._used += 1
            await asyncio.sleep(_TICK)


async def _allocate(asker: LoadSocket, name: str) -> None:
    await asker.ask(
        id=1,
        type="create",
        from_=f"{runtime_url(name)}/registry",
        to=ALLOCATION,
        body={"scheme": "comm", "value": {"number": 1}},
    )
