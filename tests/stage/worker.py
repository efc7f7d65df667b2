"""Whole workers in one process, and runtimes connected to them without a socket between."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine
from typing import Any

from msgnode.node import Node
from msgnode.sessions.connection import Connection
from msgnode.workers.cluster import Cluster
from tests import waiting
from tests.client import ALLOCATION, runtime
from tests.fakes import FakeLink

LEASE = 1.5
Start = Callable[..., Coroutine[Any, Any, Node]]


class Runtime:
    """A runtime connected to a worker, without a socket between."""

    def __init__(self, at: Node, url: str = "") -> None:
        self.url = url or runtime()
        self.link = FakeLink()
        parts = at.parts
        self.token = ""
        self._ids = itertools.count(1)
        self.connection = parts.connections.connection(Connection, self.link, "127.0.0.1")
        parts.sockets.add(self.connection, "127.0.0.1")

    def say(self, type_: str, to: str, body: Any = None, sender: str = "") -> int:
        id_ = next(self._ids)
        frame = {"id": id_, "type": type_, "from": sender or self.url, "to": to, "body": body or {}}
        self.connection.frame_received(json.dumps(frame, separators=(",", ":")).encode())
        return id_

    async def ask(self, type_: str, to: str, body: Any = None, sender: str = "") -> dict[str, Any]:
        id_ = self.say(type_, to, body, sender)
        found: list[dict[str, Any]] = []
        await waiting.so(lambda: bool(found.extend(self.answers(id_)) or found))
        return found[0]["body"]

    def answers(self, id_: int) -> list[dict[str, Any]]:
        frames = map(json.loads, self.link.frames)
        return [each for each in frames if each["type"] == "response" and each["id"] == id_]

    async def open(self) -> Runtime:
        body = await self.ask("open", "mn:/session")
        assert body["code"] == 200, body
        self.token = body["runtimeToken"]
        return self

    async def allocate(self) -> str:
        body = await self.ask("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
        assert body["code"] == 200, body
        return body["value"]["allocated"][0]


def freeze(worker: Node) -> None:
    """Nothing of it is heard any more, and its lease runs out."""
    assert isinstance(worker.parts.cluster, Cluster)
    worker.parts.lease.renew = _never  # type: ignore[method-assign]
    for task in (*worker.parts.cluster._jobs, *worker.parts.cluster.transport._tasks):
        task.cancel()


async def _never() -> None:
    await asyncio.Event().wait()
