"""Holding: sessions that are only there, and sessions that hold much."""

from __future__ import annotations

from typing import Any

from bench.wire import LoadSocket

from .runtimes import ALLOCATION, SM, open_runtimes, runtime_url

_BLOCK = 1000
_BLOCKS_PER_SESSION = 10


class HoldingLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._idle: list[LoadSocket] = []
        self._holders: list[LoadSocket] = []

    async def run(self, sessions: int = 0, entries: int = 0) -> dict[str, Any]:
        """Have so many idle sessions, each with one address and one subscription; and so many
        addresses and subscriptions more, in the hands of a few."""
        first = len(self._idle)
        wanted = {
            f"idle-{number}": [
                f"hyperty://localhost/idle-{number}",
                f"comm://localhost/room-{number}/changes",
            ]
            for number in range(first, sessions)
        }
        self._idle += await open_runtimes(self._port, wanted)
        if entries:
            await self._hold(entries)
        return {"sessions": len(self._idle), "lost": sum(socket.closed for socket in self._idle)}

    async def _hold(self, entries: int) -> None:
        share = _BLOCK * _BLOCKS_PER_SESSION
        names = [f"holder-{number}" for number in range(-(-entries // share))]
        self._holders = await open_runtimes(self._port, {name: [] for name in names})
        left = entries
        for name, socket in zip(names, self._holders, strict=True):
            url = runtime_url(name)
            for block in range(_BLOCKS_PER_SESSION):
                number = min(_BLOCK, left)
                if not number:
                    return
                left -= number
                body: dict[str, Any] = {"scheme": "comm", "value": {"number": number}}
                await socket.ask(id=3, type="create", from_=url, to=ALLOCATION, body=body)
                rooms = [
                    f"comm://localhost/{name}-{block}-{each}/changes" for each in range(number)
                ]
                body = {"resources": rooms}
                await socket.ask(id=4, type="subscribe", from_=url, to=SM, body=body)
