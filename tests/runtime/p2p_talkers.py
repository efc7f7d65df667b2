"""Runtimes with P2P for tests, all in one process: what they say, what arrives, and how it came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aioice.ice
import pytest

from msgnode.runtime.python import Runtime, Settings
from msgnode.runtime.python.messages import Message, body_of
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.peer_to_peer import PeerToPeer
from msgnode.runtime.python.p2p.settings import P2PSettings
from tests.node import Node

SECONDS = 60.0


class Talker:
    """A runtime with a hyperty below its URL, which keeps what it is told and answers it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.url = f"{runtime.url}/app"
        self.numbers: list[Any] = []
        self.by_channel = 0
        self.states: list[tuple[str, str]] = []
        self._changed = asyncio.Event()
        runtime.bus.add_listener(self.url, self._take)
        runtime.bus.add_listener(f"{runtime.url}/status", self._told)

    @property
    def p2p(self) -> PeerToPeer:
        assert self.runtime.p2p is not None
        return self.runtime.p2p

    def way_to(self, other: Talker) -> Way:
        peer = self.p2p.known.get(other.runtime.url)
        return peer.link.way if peer else Way.NODE

    def say(self, other: Talker, number: Any, **body: Any) -> None:
        message = {"type": "update", "from": self.url, "to": other.url}
        self.runtime.bus.post_message({**message, "body": {"value": number, **body}})

    async def ask(self, other: Talker, number: Any, **body: Any) -> Any:
        message = {"type": "create", "from": self.url, "to": other.url}
        body = {"value": number, "p2pHandler": other.p2p.handler, **body}
        answer = await self.runtime.bus.request({**message, "body": body}, SECONDS)
        return body_of(answer)

    async def until(self, is_so: Any) -> None:
        """Wait until something holds; looked at whenever a message or a state comes."""
        async with asyncio.timeout(SECONDS):
            while not is_so():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):  # a way changes without a word
                        await self._changed.wait()

    def _take(self, message: Message) -> None:
        body = body_of(message)
        if message["type"] == "response":
            return
        self.by_channel += "/p2prequester/" in str(body.get("via"))
        if message["type"] == "update":
            self.numbers.append(body["value"])
        else:
            head = {"id": message["id"], "type": "response", "from": self.url}
            answer = {"code": 200, "value": body["value"], "cameBy": body.get("via")}
            self.runtime.bus.post_message({**head, "to": message["from"], "body": answer})
        self._changed.set()

    def _told(self, message: Message) -> None:
        body = body_of(message)
        if body.get("peer"):
            self.states.append((body["peer"], body["value"]))
        self._changed.set()


@contextlib.asynccontextmanager
async def talkers(
    node: Node, *settings: P2PSettings | None, other: Node | None = None
) -> AsyncIterator[list[Talker]]:
    """Runtimes at one node, all but the first at its `other` worker; None for one without P2P."""
    async with contextlib.AsyncExitStack() as stack:
        made: list[Talker] = []
        for each in settings:
            catalogues = {"localhost": f"http://127.0.0.1:{(made and other or node).port}"}
            chosen = Settings("localhost", catalogues=catalogues, p2p=each)
            runtime = await stack.enter_async_context(Runtime(chosen))
            assert await runtime.log_in() == "live"
            made.append(Talker(runtime))
        yield made


async def connect(alice: Talker, bob: Talker) -> None:
    """A channel that is in use in both directions."""
    assert (await alice.ask(bob, 0, p2p=True))["code"] == 200
    await alice.until(lambda: alice.way_to(bob) is Way.CHANNEL)
    await bob.until(lambda: bob.way_to(alice) is Way.CHANNEL)


async def numbered(alice: Talker, bob: Talker, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Both say numbers without a pause while something happens, and 200 after it; all arrive once
    and in order."""
    has_happened = asyncio.Event()

    async def say(sender: Talker, receiver: Talker) -> int:
        said = last = 0
        while said < (last or 10_000):
            sender.say(receiver, said)
            said += 1
            if not last and has_happened.is_set():
                last = said + 200
            if said % 10 == 0:
                await asyncio.sleep(0.005)  # the pace of a talk, not a wait for anything
        return said

    talking = [asyncio.create_task(say(alice, bob)), asyncio.create_task(say(bob, alice))]
    await meanwhile()
    has_happened.set()
    by_alice, by_bob = await asyncio.gather(*talking)
    await bob.until(lambda: len(bob.numbers) >= by_alice)
    await alice.until(lambda: len(alice.numbers) >= by_bob)
    assert bob.numbers == list(range(by_alice))
    assert alice.numbers == list(range(by_bob))


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """aioice never offers 127.0.0.1 by itself."""
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])
