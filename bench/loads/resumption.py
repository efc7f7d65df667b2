"""Resumption: sessions come back, all at once, to a node that was killed and started again, or to
one that has lost all their connections at once.

A session is resumed if its token is still good: the answer to `re-open` then brings no new one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bench.wire import LoadSocket

from .runtimes import AT_ONCE, open_session, runtime_url, source_of


class ResumptionLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._tokens: dict[str, str] = {}
        self._sockets: list[LoadSocket] = []

    async def run(self, sessions: int = 0) -> dict[str, Any]:
        """Open so many sessions; without a number, bring back those that were opened."""
        turns = asyncio.Semaphore(AT_ONCE)
        lost = 0

        async def open_one(number: int) -> None:
            name = f"returning-{number}"
            async with turns:
                socket, body = await open_session(
                    self._port, name, [_claim(name)], source=source_of(number)
                )
            self._sockets.append(socket)
            self._tokens[name] = body["runtimeToken"]

        async def reopen_one(number: int, name: str) -> None:
            nonlocal lost
            async with turns:
                socket = await LoadSocket.connect(self._port, source=source_of(number))
                url = f"{runtime_url(name)}/{self._tokens[name]}"
                body = await socket.ask(id=1, type="re-open", from_=url, to="mn:/session")
            self._sockets.append(socket)
            lost += "runtimeToken" in body

        if sessions:
            await asyncio.gather(*map(open_one, range(sessions)))
        else:
            for socket in self._sockets:
                socket.close()
            self._sockets.clear()
            await asyncio.gather(*map(reopen_one, *zip(*enumerate(self._tokens), strict=True)))
        return {"sessions": len(self._tokens), "lost": lost}


def _claim(name: str) -> str:
    return f"hyperty://localhost/{name}"
