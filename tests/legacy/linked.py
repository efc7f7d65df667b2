"""A link to an XMPP network whose node is a session that the test plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from msgnode.bus.holders import NO_OTHERS
from msgnode.core import messages
from msgnode.core.identity import Identity
from msgnode.legacy.link import Around, LegacyLink, LegacyPeer
from msgnode.legacy.network import Here, LegacyNetwork, LegacySettings
from msgnode.legacy.xmpp import XmppNetwork

from .fake_server import SECONDS
from .fake_xmpp import DOMAIN, GATEWAY, SECRET, FakeXmpp

OWN = "a.example"
ALICE = f"user://{OWN}/alice@{OWN}"
OURS, BOB = f"hyperty://{OWN}/1", f"xmpp://{DOMAIN}/bob"
REGISTRY = f"domain://registry.{OWN}"


class Node:
    """What a link has of its node: a session, a registry, and runtimes that answer.

    `users` are who is at an address, `registry` the hyperties of a user, `code` what these answer.
    """

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.users: dict[str, str] = {OURS: ALICE}
        self.runtimes: dict[str, str] = {}
        self.registry: dict[str, dict[str, Any]] = {ALICE: {OURS: {"status": "live"}}}
        self.codes: dict[str, int | None] = {}
        self.alarms: list[tuple[str, str]] = []
        self.is_held_back = False
        self.vouched: Identity | None = None
        self.link: Any = SimpleNamespace(closed=None)
        self.frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def owner_of(self, address: str) -> Any:
        user = self.users.get(address, "")
        runtime = self.runtimes.get(address) or ("runtime://a.example/1" if user else "")
        is_there = bool(runtime) or address in self.runtimes.values()
        if not is_there:
            return None
        identity = Identity("us", user, user_url=user) if user else None
        return SimpleNamespace(
            speaker=SimpleNamespace(identity=identity), runtime_url=runtime or address
        )

    # --- Opener and its session -------------------------------------------------------------------

    async def open(self, domain: str, stub_url: str, outlet: Any) -> Any:
        self.outlet = outlet
        self.link.closed = None
        return self

    async def close(self, connection: Any, domain: str, stub_url: str) -> None:
        self.link.closed = True

    async def ready(self) -> None:
        """It takes everything."""

    def frame_received(self, frame: bytes, message: Any = None) -> None:
        vouched_for = self.outlet.vouched_for
        self.vouched = vouched_for(messages.parse(frame)) if vouched_for is not None else None
        told = json.loads(frame)
        self.said.append(told)
        self.frames.put_nowait(told)
        if told["type"] in ("response", "update"):
            return
        if told["to"] == REGISTRY:
            found = self.registry.get(told["body"]["resource"])
            refused = {"code": self.codes.get(REGISTRY, 404)}
            body = (
                {"code": 200, "value": found} if found and REGISTRY not in self.codes else refused
            )
        else:
            code = self.codes.get(told["to"], 200)
            if code is None:
                return  # nobody answers
            body = {"code": code, "description": "as the test wants it"}
        reply = messages.reply(messages.parse(frame), body)
        asyncio.get_running_loop().call_soon(self.outlet.write, reply)

    # --- Observed ---------------------------------------------------------------------------------

    def answered(self, domain: str, answer: Any) -> None:
        self.granted = answer

    def missed(self, domain: str, addresses: list[str]) -> None:
        """Nothing was."""


class Kept:
    """What outlives a worker, without a database."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], None] = {}

    async def read(self) -> list[tuple[str, str, str]]:
        return list(self.rows)

    def write(self, kind: str, here: str, there: str, is_kept: bool) -> None:
        if is_kept:
            self.rows[kind, here, there] = None
        else:
            self.rows.pop((kind, here, there), None)


class Linked:
    """A link that runs, its node and its server."""

    def __init__(self, link: LegacyLink, node: Node, server: Any) -> None:
        self.link, self.node, self.server = link, node, server
        self._number = 0

    def send(
        self, text: Any, to: str = BOB, sender: str = OURS, type_: str = "create", **body: Any
    ) -> str:
        """A runtime of the node sends this; the id of its message."""
        self._number += 1
        id_ = str(body.pop("id", self._number))
        value = {"value": {"type": "chat", "content": text}} if isinstance(text, str) else text
        frame = {"id": id_, "type": type_, "from": sender, "to": to, "body": value | body}
        self.node.outlet.write(json.dumps(frame).encode())
        return id_

    async def answer(self, id_: str) -> dict[str, Any]:
        """The body of the answer to a message."""
        found = await self.until(
            lambda: [e for e in self.node.said if e["type"] == "response" and e["id"] == id_]
        )
        assert len(found) == 1, found
        return dict(found[0]["body"])

    async def ask(self, text: Any, **more: Any) -> dict[str, Any]:
        return await self.answer(self.send(text, **more))

    async def until(self, condition: Callable[[], Any]) -> Any:
        return await self.server.until(condition)

    async def live(self) -> None:
        await self.until(lambda: self.link.state == "live")

    def created(self) -> list[dict[str, Any]]:
        """What runtimes of the node were sent."""
        return [each for each in self.node.said if each["type"] == "create"]


def link_at(
    node: Node,
    domain: str,
    make: Callable[[Here], LegacyNetwork],
    kept: Kept | None = None,
    trusted: bool = False,
) -> LegacyLink:
    """The link of a node to a network."""
    around = Around(
        OWN, cast(Any, node), node, kept or Kept(), NO_OTHERS, node.owner_of,
        lambda kind, subject, text: node.alarms.append((kind, text)), lambda *_: None, 3600.0,
    )  # fmt: skip
    stub, ours = f"runtime://{domain}/messaging-node-1", f"runtime://{OWN}/mn-1"
    return LegacyLink(LegacyPeer(domain, stub, ours, trusted), around, make)


@asynccontextmanager
async def linked(
    server: FakeXmpp | None = None,
    kept: Kept | None = None,
    trusted: bool = False,
    make: Callable[[LegacySettings, Here], LegacyNetwork] = XmppNetwork,
    **settings: Any,
) -> AsyncIterator[Linked]:
    """A link, live unless the server does not take it."""
    node = Node()
    fake = server or await FakeXmpp().start()
    place: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": fake.port,
        "component": GATEWAY,
        "secret": SECRET,
    }
    chosen = LegacySettings(DOMAIN, **(place | {"per_minute": 100_000} | settings))
    link = link_at(node, DOMAIN, partial(make, chosen), kept, trusted)
    task = asyncio.create_task(link.run())
    each = Linked(link, node, fake)
    try:
        if settings.get("secret", fake.secret) == fake.secret and fake.secret == SECRET:
            async with asyncio.timeout(SECONDS):
                await each.live()
        yield each
    finally:
        await link.stop()
        with suppress(asyncio.CancelledError):
            await task
        await fake.stop()
