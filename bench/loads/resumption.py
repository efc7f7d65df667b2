"""Resumption: sessions come back, all at once, to a node that was killed and started again.

A session is resumed if its token is still good: the answer to `re-open` then brings no new one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bench.wire import LoadSocket

from .runtimes import AT_ONCE, open_session, runtime_url


class ResumptionLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._tokens: dict[str, str] = {}
        self._sockets: list[LoadSocket] = []

    async def run(self, sessions: int = 0) -> dict[str, Any]:
        """Open so many sessions; without a number, bring back those that were opened."""
        turns = asyncio.Semaphore(AT_ONCE)
        lost = 0

        async def open_one(name: str) -> None:
            async with turns:
                socket, body = await open_session(self._port, name, [_claim(name)])
            self._sockets.append(socket)
            self._tokens[name] = body["runtimeToken"]

        async def reopen_one(name: str) -> None:
            nonlocal lost
            async with turns:
                socket = await LoadSocket.connect(self._port)
                url = f"{runtime_url(name)}/{self._tokens[name]}"
                body = await socket.ask(id=1, type="re-open", from_=url, to="mn:/session")
            self._sockets.append(socket)
            lost += "runtimeToken" in body

        if sessions:
            names = [f"returning-{number}" for number in range(sessions)]
            await asyncio.gather(*map(open_one, names))
        else:
            self._sockets.clear()
            await asyncio.gather(*map(reopen_one, self._tokens))
        return {"sessions": len(self._tokens), "lost": lost}


def _claim(name: str) -> str:
    return f"hyperty://localhost/{name}"
