"""Keeps hyperties and data objects in the domain registry, so that others find them.

Rules
- A sign of life is given before an entry expires, and when the home stub is back after it was away:
  the registry ends what a lost session had registered. What the registry does not know any more is
  registered again.
- A data object works without: a registry that refuses or is away is told to the error hook, and
  asked again with the next sign of life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, body_of

from .errors import SyncError
from .talk import Body, ask_until_answered

EXPIRES = 3600  # seconds
REFRESH = EXPIRES / 2.2


class Registrations:
    """Those of one runtime."""

    def __init__(self, bus: MessageBus, domain: str) -> None:
        self._bus = bus
        self._domain = domain
        self._to = f"domain://registry.{domain}"
        self._from = f"{bus.runtime_url}/registry/"
        self._entries: dict[str, Body] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_away = False
        self._listening = bus.add_listener(f"{bus.runtime_url}/status", self._status)

    def add(self, url: str, hyperty: str, schema: str, value: dict[str, Any]) -> None:
        """Register a data object, now or with the next sign of life."""
        entry = {"url": url, "name": value.get("name", ""), "schema": schema, "reporter": hyperty}
        entry["resources"] = value.get("resources", [])
        self._start(self.register({**entry, "dataSchemes": [url.partition(":")[0]]}))

    async def register(self, value: Body) -> None:
        """Register what has a `url`, and keep it registered until remove(). Raises SyncError."""
        whole = {**value, "status": "live", "expires": EXPIRES, "runtime": self._bus.runtime_url}
        whole |= self._bus.registered_with
        self._entries[value["url"]] = whole
        self._arm()
        await self._ask("create", {"value": whole, "policy": "policy"})

    def has(self, url: str) -> bool:
        """Whether an address is registered, or will be with the next sign of life."""
        return url in self._entries

    async def unregister(self, url: str) -> None:
        """The entry is there no more; returns once the registry knows it or does not answer."""
        if self._entries.pop(url, None) is not None:
            await self._ask("update", {"resource": url, "value": {"status": "disconnected"}})

    def remove(self, url: str) -> None:
        """As unregister(), and nobody waits for it."""
        self._start(self.unregister(url))

    def close(self) -> None:
        """Refresh nothing any more."""
        self._listening.remove()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._entries.clear()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REFRESH, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._refresh_all()
        if self._entries:
            self._arm()

    def _status(self, message: Message) -> None:
        body = body_of(message)
        resource, value = body.get("resource"), body.get("value")
        if not isinstance(resource, str) or "peer" in body:
            return
        if addresses.parse(resource).home != self._domain:
            return
        if value == "disconnected":
            self._is_away = True
        elif value == "gap" or (value == "live" and self._is_away):
            self._is_away = False
            self._refresh_all()

    def _refresh_all(self) -> None:
        for url in self._entries:
            self._start(self._refresh(url))

    async def _refresh(self, url: str) -> None:
        body = {"resource": url, "value": {"status": "live"}, "method": "refresh"}
        try:
            await self._ask("update", body)
        except SyncError as error:
            if error.code != 404:
                raise
            if url in self._entries:
                await self._ask("create", {"value": self._entries[url], "policy": "policy"})

    async def _ask(self, kind: str, body: Body) -> None:
        message = {"type": kind, "from": self._from, "to": self._to, "body": body}
        await ask_until_answered(self._bus, message)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            code = error.code if isinstance(error, SyncError) else 500
            text = f"{self._to} answered {code}: {error}"
            self._bus.report("data.not-registered", text, None, error)
