"""Resumption: sessions come back, all at once, to a node that was killed and started again, or to
one that has lost all their connections at once.

A session is resumed if its token is still good: the answer to `re-open` then brings no new one.
There may be more sessions than sockets: the one connected first is then disconnected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from bench.wire import LoadSocket

from .runtimes import AT_ONCE, open_session, runtime_url, source_of


class ResumptionLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._tokens: dict[str, str] = {}
        self._sockets: deque[LoadSocket] = deque()

    async def run(self, sessions: int = 0, sockets: int = 0) -> dict[str, Any]:
        """Open so many more sessions; without a number, bring back those that were opened.

        Args:
            sessions: to open.
            sockets: at most connected at once; 0 for all.
        """
        turns = asyncio.Semaphore(AT_ONCE)
        lost = 0

        async def open_one(number: int) -> None:
            name = f"returning-{number}"
            async with turns:
                socket, body = await open_session(
                    self._port, name, [_claim(name)], source=source_of(number)
                )
            self._hold(socket, sockets)
            self._tokens[name] = body["runtimeToken"]

        async def reopen_one(number: int, name: str) -> None:
            nonlocal lost
            async with turns:
                socket = await LoadSocket.connect(self._port, source=source_of(number))
                url = f"{runtime_url(name)}/{self._tokens[name]}"
                body = await socket.ask(id=1, type="re-open", from_=url, to="mn:/session")
            self._hold(socket, sockets)
            lost += "runtimeToken" in body

        if sessions:
            first = len(self._tokens)
            await asyncio.gather(*map(open_one, range(first, first + sessions)))
        else:
            for socket in self._sockets:
                socket.close()
            self._sockets.clear()
            await asyncio.gather(*map(reopen_one, *zip(*enumerate(self._tokens), strict=True)))
        return {"sessions": len(self._tokens), "lost": lost}

    def _hold(self, socket: LoadSocket, most: int) -> None:
        self._sockets.append(socket)
        if most and len(self._sockets) > most:
            self._sockets.popleft().close()


def _claim(name: str) -> str:
    return f"hyperty://localhost/{name}"
