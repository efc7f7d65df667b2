"""A link to a peer that a test plays: the stub in a real sandbox, its socket a real one."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from msgnode.core import messages
from msgnode.core.messages import Message
from msgnode.federation.kinds import UNKNOWN, kind_of
from msgnode.federation.linked_peer import LinkedPeer, LinkTo
from msgnode.federation.peer import LinkLimits, PeerLink
from msgnode.federation.sockets import SocketLimits
from msgnode.federation.states import LIVE_SECONDS
from msgnode.federation.stub import PeerStub
from msgnode.sandbox.process import SandboxLimits
from tests.ports import free_port

from .sandboxes import SECONDS

A, B = "a.example", "b.example"
STUB_URL = f"runtime://{B}/messaging-node-1"
OURS, THEIRS = f"hyperty://{A}/1", f"hyperty://{B}/1"


Hears = Callable[[dict[str, Any], ServerConnection], Any]


class Played:
    """The peer's node: opens sessions, and writes down what else it is sent.

    `hears` is called with each message and the socket it came by; it may answer. Sessions there are
    resumed with `token`.
    """

    def __init__(self, hears: Hears | None = None, port: int = 0, token: str = "the same") -> None:
        self.heard: list[dict[str, Any]] = []
        self.links: list[ServerConnection] = []
        self.port = port
        self.token = token
        self._hears = hears
        self._server: Server | None = None

    async def start(self) -> None:
        self.port = self.port or free_port()  # which nobody is given while nothing listens there
        self._server = await serve(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """End as a process that is killed does: sockets without a word, nothing listens."""
        assert self._server is not None
        self._server.close(close_connections=False)
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Lose all sockets."""
        for link in self.links:
            link.transport.abort()

    @property
    def values(self) -> list[Any]:
        return [each["body"].get("value") for each in self.heard]

    async def _serve(self, link: ServerConnection) -> None:
        self.links.append(link)
        with suppress(ConnectionClosed):
            async for text in link:
                message = json.loads(text)
                if message["to"] == "mn:/session":
                    body = {"code": 200, "runtimeToken": self.token}
                    answer = {"id": message["id"], "type": "response", "from": "mn:/session"}
                    await link.send(json.dumps({**answer, "to": message["from"], "body": body}))
                    continue
                self.heard.append(message)
                if self._hears is not None:
                    await self._hears(message, link)


class Node:
    """What a link has of its node: a session, whose frames are kept."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.opened = 0
        self.opens = asyncio.Event()
        self.opens.set()
        self.is_held_back = False
        self.link: Any = SimpleNamespace(closed=None)

    async def open(self, domain: str, stub_url: str, outlet: Any) -> Any:
        await self.opens.wait()
        self.link = outlet
        self.opened += 1
        return self

    async def close(self, connection: Any, domain: str, stub_url: str) -> None:
        self.link.close(1000, "it is not needed")

    def frame_received(self, frame: bytes, message: Any = None) -> None:
        if self.link.closed is None:  # else it would not be carried
            self.said.append(json.loads(frame))

    async def ready(self) -> None:
        """It takes everything."""


class Linked:
    """A link that runs."""

    def __init__(self, link: PeerLink, node: Node, peer: Played) -> None:
        self.link, self.node, self.peer = link, node, peer

    def post(self, value: Any, type_: str = "read", to: str = THEIRS, **body: Any) -> None:
        """A runtime here has sent this."""
        self.link._outgoing(message(value, type_, to, **body).frame)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110  (counters and states tell nobody)
                await asyncio.sleep(0.01)

    async def live(self) -> None:
        await self.until(lambda: self.link.state == "live")


def message(value: Any, type_: str = "read", to: str = THEIRS, **body: Any) -> Message:
    frame = {"id": f"m{value}", "type": type_, "from": OURS, "to": to}
    return messages.parse(json.dumps({**frame, "body": {"value": value, **body}}).encode())


@asynccontextmanager
async def linked(
    source: str,
    peer: Played,
    store: Any = None,
    starts: asyncio.Semaphore | None = None,
    idle: float = 600.0,
    live: float = LIVE_SECONDS,
    kind: str = UNKNOWN,
    configuration: dict[str, Any] | None = None,
    to: LinkTo | None = None,
    **sandbox: Any,
) -> AsyncIterator[Linked]:
    """Serve a peer with this stub."""
    await peer.start()
    stub = PeerStub(
        B, STUB_URL, f"runtime://{A}/mn-1", "0" * 64, source,
        configuration or {"url": f"ws://127.0.0.1:{peer.port}/ws"}, frozenset({"127.0.0.1"}),
        kind_of(kind),
    )  # fmt: skip
    networks = [ipaddress.ip_network("127.0.0.0/8")]
    sockets = SocketLimits(frozenset({"127.0.0.1"}), networks)
    limits = LinkLimits(
        SandboxLimits(**{"silence": 12.0, **sandbox}), sockets, 1_000, 1_000_000, 60.0, idle, live
    )
    if starts is not None:
        limits = replace(limits, starts=starts)
    node, nobody = Node(), SimpleNamespace(answered=lambda *_: None, missed=lambda *_: None)
    arguments: Any = (stub, A, limits, node, nobody, store)
    link = LinkedPeer(to, *arguments) if to is not None else PeerLink(*arguments)
    running = asyncio.create_task(link.run())
    try:
        yield Linked(link, node, peer)
    finally:
        link.abort()
        await asyncio.wait([running], timeout=SECONDS)
        if link.sandbox is not None:
            await link.sandbox.ended()
        await peer.stop()
