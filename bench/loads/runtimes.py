"""Runtimes of the load: sockets with a session, opened many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from bench.wire import LoadSocket

SM = "domain://msg-node.localhost/sm"
ALLOCATION = "domain://msg-node.localhost/address-allocation"
AT_ONCE = 256
_DESCRIPTION = (
    "a=candidate:842163049 1 udp 1677729535 203.0.113.7 46154 typ srflx raddr 10.0.0.17 "
    "rport 46154 generation 0 ufrag kQ4z network-cost 50 a=rtpmap:111 opus/48000/2 "
)


def text(size: int) -> str:
    """So many bytes of what runtimes tell one another when they set up a call."""
    return (_DESCRIPTION * (size // len(_DESCRIPTION) + 1))[:size]


def runtime_url(name: str) -> str:
    return f"runtime://localhost/{name}"


def source_of(number: int) -> str:
    """The loopback address that this one of many sessions comes from: 10,000 from each."""
    return f"127.0.0.{1 + number // 10_000}"


async def open_session(
    port: int, name: str, resources: Iterable[str], token: str = "", source: str = ""
) -> tuple[LoadSocket, dict[str, Any]]:
    """A session of the runtime `name`, subscribed to `resources` (naming a hyperty claims it), and
    the body of the answer to `open`."""
    socket = await LoadSocket.connect(port, source=source)
    url = runtime_url(name)
    body: dict[str, Any] = {"accessToken": token} if token else {}
    opened = await socket.ask(id=1, type="open", from_=url, to="mn:/session", body=body)
    wanted = list(resources)
    if wanted:
        body = {"resources": wanted}
        await socket.ask(id=2, type="subscribe", from_=f"{url}/sm", to=SM, body=body)
    return socket, opened


async def open_runtimes(port: int, wanted: dict[str, list[str]]) -> list[LoadSocket]:
    """Many sessions, in the order given: name -> resources."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, resources: list[str]) -> LoadSocket:
        async with turns:
            return (await open_session(port, name, resources))[0]

    return list(await asyncio.gather(*(one(*item) for item in wanted.items())))
