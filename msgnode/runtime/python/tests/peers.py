"""Runtimes that share data objects through a node that a test can make lose, repeat and delay
messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgnode.runtime.python.faults import Fault
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, answer_to, body_of, is_answerable
from msgnode.runtime.python.syncher.stored_objects import Storage
from msgnode.runtime.python.syncher.sync_manager import SyncManager
from msgnode.runtime.python.syncher.syncher import Syncher

SM = "domain://msg-node.d/sm"


class FakeNode:
    """What a node does for data objects: subscriptions, and delivery to who has subscribed."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.seen: list[Message] = []
        self.subscribers: dict[str, list[Peer]] = {}
        self.learned: dict[str, Peer] = {}
        self.copies: Callable[[Message], int] = lambda _: 1

    def peer(self, storage: Storage | None = None) -> Peer:
        """One more runtime."""
        peer = Peer(self, len(self.peers) + 1, storage)
        self.peers.append(peer)
        return peer

    def received(self, peer: Peer, message: Message) -> None:
        """A message that a runtime sends."""
        self.seen.append(message)
        kind, sender, to = message["type"], message["from"], message["to"]
        if sender not in self.subscribers:
            self.learned[sender] = peer
        if to in (SM, "domain://registry.d"):
            for address in body_of(message).get("resources", []):
                known = self.subscribers.setdefault(address, [])
                if peer in known:
                    known.remove(peer)
                if kind == "subscribe":
                    known.append(peer)
            self.hand(peer, {**answer_to(message, 200, ""), "body": {"code": 200}})
            return
        found = list(self.subscribers.get(to, []))
        below = next((each for each in self.peers if to.startswith(f"{each.url}/")), None)
        known_peer = below or (None if found else self.learned.get(to))
        if known_peer is not None:
            found.append(known_peer)
        for each in found:
            if each is not peer:
                self.hand(each, message)
        if not found and is_answerable(message):
            self.hand(peer, answer_to(message, 404, f"Nobody listens to {to}."))

    def hand(self, peer: Peer, message: Message) -> None:
        """Deliver a message, as often as the test wants."""
        for _ in range(self.copies(message)):
            peer.bus.receive(message, peer.stub)

    def sent(self, kind: str, to: str) -> list[Message]:
        """What went to an address."""
        return [each for each in self.seen if each["type"] == kind and each["to"] == to]


class Peer:
    """A runtime with one hyperty."""

    def __init__(self, node: FakeNode, number: int, storage: Storage | None = None) -> None:
        self.node = node
        self.url = f"runtime://d/{number}"
        self.stub = f"runtime://d/protostub/{number}"
        self.hyperty = f"hyperty://d/{number}"
        self.faults: list[Fault] = []
        self.bus = MessageBus(self.url, self)
        self.bus.home_stub = self.stub
        self.bus.on_error(self.faults.append)
        self.manager = SyncManager(self.bus, "d", storage)
        self.syncher = Syncher(self, self.hyperty)

    def send(self, message: Message, size: int, stub: str) -> str:
        """The way outside."""
        self.node.received(self, message)
        return self.stub

    def say(self, value: str) -> None:
        """The runtime says what its stub said."""
        body = {"value": value, "resource": self.stub}
        head = {"type": "update", "from": self.url, "to": f"{self.url}/status"}
        self.bus.tell({**head, "body": body})

    def close(self) -> None:
        """The end of the runtime."""
        self.syncher.stop()
        self.manager.close()


async def soon(holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)
