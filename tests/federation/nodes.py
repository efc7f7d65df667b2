"""Two real nodes, of a.example and b.example, for tests; the first meets the second."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil

from tests.client import Client, Frame
from tests.e2e.launched import command_of
from tests.e2e.pair import OwnRedis
from tests.node import Node

A, B = "a.example", "b.example"
SECONDS = 60.0
_NOTHING = {"effect": "deny", "condition": {"msgTo": {"equals": "x:nobody"}}}


have_come: list[Client] = []
"""Runtimes that `come` has brought to the nodes of this test."""


class TwoNodes:
    """Node `a` meets node `b`, whose stub it finds in b's catalogue.

    `settings` are those of a, `of_b` those of b.
    """

    def __init__(
        self, place: Path, template: Path, of_b: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        shared = {"ALLOWED_HOSTS": "*"}
        for name in ("a", "b"):
            (place / name).mkdir(parents=True)
            shutil.copy(template, place / name / "node.sqlite3")
        self.b = Node(place / "b", DOMAIN=B, **shared, **(of_b or {}))
        self.a = Node(
            place / "a", DOMAIN=A, FEDERATION="listed", FEDERATION_NETWORKS="127.0.0.0/8",
            **shared, **settings,
        )  # fmt: skip

    def second_worker(self, **settings: Any) -> Node:
        """Another worker of a, not started yet."""
        return Node(self.a.data_dir, **{**_own(self.a), **settings})

    def start(self) -> None:
        for node in (self.a, self.b):
            node.start()

    def kill(self) -> None:
        self.a.kill()
        self.b.kill()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Both, which have met; they are killed behind the block."""
        try:
            self.start()
            self.introduce()
            yield self
        finally:
            self.kill()

    def introduce(self) -> None:
        """What an operator of a does: add b, look at what was found, approve it."""
        self.a.manage("peers", "add", B, "--url", f"http://127.0.0.1:{self.b.port}")
        self.wait(lambda peer: peer["found_digest"])
        self.a.manage("peers", "approve", B)
        self.wait_live()

    def peer(self, node: Node | None = None, domain: str = B) -> dict[str, Any]:
        """A peer as a node sees it, b as a does if none is named."""
        return peer_row(node or self.a, domain)

    def wait(self, condition: Any, node: Node | None = None, domain: str = B) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while not condition(peer := self.peer(node, domain)):
            assert time.monotonic() < until, f"{peer}\n{(node or self.a).log()}"
            time.sleep(0.02)
        return peer

    def wait_live(self) -> None:
        self.wait(lambda peer: peer["state"] == "live")

    def publish(self, *refused: dict[str, Any]) -> None:
        """Publish policies at a that refuse these conditions."""
        publish(self.a, *refused)

    def sandboxes(self) -> list[psutil.Process]:
        """The processes of the engine that a runs."""
        below = psutil.Process(self.a.pid).children(recursive=True)
        return [each for each in below if "sandbox/js/host.js" in " ".join(command_of(each))]

    def signal_sandboxes(self, by: int) -> None:
        for each in self.sandboxes():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(by)


class TwoWorkersAndB(TwoNodes):
    """Node a is two workers, over a Redis of its own; the subclass starts the `other`."""

    def __init__(self, place: Path, template: Path) -> None:
        self._redis = OwnRedis(place)
        of_b = {"FEDERATION": "listed", "FEDERATION_NETWORKS": "127.0.0.0/8"}
        super().__init__(place / "nodes", template, of_b, REDIS_URL=self._redis.url, WORKERS=2)
        self.other = self.second_worker()

    def start(self) -> None:
        self._redis.start()
        super().start()

    def kill(self) -> None:
        super().kill()
        self.other.kill()
        self._redis.stop()


def publish(node: Node, *refused: dict[str, Any]) -> None:
    """Publish policies at a node of one worker that refuse these conditions; they are in force."""
    rules = [{"effect": "deny", "condition": each} for each in refused]
    path = node.data_dir / "policies.json"
    path.write_text(json.dumps([{"policies": [{"rules": rules or [_NOTHING]}]}]))
    node.publish(path, "--replace", "--mode", "enforce")


def peer_row(node: Node, domain: str = B) -> dict[str, Any]:
    """What the database of a node has of a peer."""
    with sqlite3.connect(f"file:{node.data_dir}/node.sqlite3?mode=ro", uri=True) as database:
        database.row_factory = sqlite3.Row
        found = database.execute("SELECT * FROM msgnode_peer WHERE domain = ?", [domain]).fetchone()
    database.close()
    return {**found, "figures": json.loads(found["figures"] or "{}")}


async def until_row(node: Node, condition: Any, domain: str = B) -> dict[str, Any]:
    """What the database of a node has of a peer, once that is so."""
    until = time.monotonic() + SECONDS
    while not condition(row := peer_row(node, domain)):
        assert time.monotonic() < until, f"{row}\n{node.log()}"
        await asyncio.sleep(0.02)
    return row


def _own(node: Node) -> dict[str, str]:
    """The settings that a node was made with."""
    names = ("DOMAIN", "FEDERATION", "FEDERATION_NETWORKS", "ALLOWED_HOSTS", "WORKERS")
    names += ("WORKER_TIMEOUT", "REDIS_URL")
    return {name: node.environment[name] for name in names if name in node.environment}


async def come(node: Node, domain: str, name: str) -> Client:
    """A runtime of a node's own domain."""
    client = Client(f"ws://127.0.0.1:{node.port}/ws")
    await client.connect()
    have_come.append(client)
    return await client.open(f"runtime://{domain}/{name}")


async def answer_requests(client: Client) -> None:
    """Answer every request that comes, until cancelled, however long none comes."""
    while True:
        frame = json.loads(await client.socket.recv())
        if frame["type"] != "response":
            body = {"code": 200, "value": frame["body"].get("value")}
            await client.send("response", frame["from"], body, id=frame["id"], sender=frame["to"])
        await asyncio.sleep(0)


async def subscribe(client: Client, domain: str, address: str) -> Frame:
    """What the subscription manager of a domain answers."""
    return await client.ask("subscribe", f"domain://msg-node.{domain}/sm", {"resources": [address]})


def subscribed_at(node: Node, address: str) -> int:
    """How many sessions of a node have subscribed an address, by its database."""
    with sqlite3.connect(f"file:{node.data_dir}/node.sqlite3?mode=ro", uri=True) as database:
        found = database.execute(
            "SELECT COUNT(*) FROM msgnode_subscription WHERE address = ?", [address]
        ).fetchone()
    database.close()
    return int(found[0])
