"""Keeps data objects in the domain registry, so that others find them.

An object works without: a registry that refuses or is away is told to the error hook, and asked
again with the next refresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, body_of, code_of

EXPIRES = 3600  # seconds
REFRESH = EXPIRES / 2.2


class Registrations:
    """Those of one runtime."""

    def __init__(self, bus: MessageBus, domain: str) -> None:
        self._bus = bus
        self._to = f"domain://registry.{domain}"
        self._from = f"{bus.runtime_url}/registry/"
        self._objects: dict[str, dict[str, Any]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, url: str, hyperty: str, schema: str, value: dict[str, Any]) -> None:
        """Register an object."""
        self._objects[url] = {
            "url": url,
            "name": value.get("name", ""),
            "schema": schema,
            "reporter": hyperty,
            "resources": value.get("resources", []),
            "dataSchemes": [url.partition(":")[0]],
            "status": "live",
            "expires": EXPIRES,
            "runtime": self._bus.runtime_url,
            **self._bus.registered_with,
        }
        self._create(url)
        self._arm()

    def remove(self, url: str) -> None:
        """The object is there no more."""
        if self._objects.pop(url, None) is not None:
            self._ask("update", {"resource": url, "value": {"status": "disconnected"}})

    def close(self) -> None:
        """Refresh nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._objects.clear()

    def _create(self, url: str) -> None:
        if url in self._objects:
            self._ask("create", {"value": self._objects[url], "policy": "policy"})

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REFRESH, self._refresh)

    def _refresh(self) -> None:
        self._timer = None
        for url in list(self._objects):
            body = {"resource": url, "value": {"status": "live"}, "method": "refresh"}
            self._ask("update", body, lambda url=url: self._create(url))  # type: ignore[misc]
        if self._objects:
            self._arm()

    def _ask(
        self, kind: str, body: dict[str, Any], unknown: Callable[[], None] | None = None
    ) -> None:
        def take(answer: Message) -> None:
            code = code_of(answer)
            if code == 404 and unknown is not None:
                unknown()
            elif code >= 300:
                words = body_of(answer).get("desc") or body_of(answer).get("description")
                text = f"{self._to} answered {code}: {words}"
                self._bus.report("data.not-registered", text, answer)

        message = {"type": kind, "from": self._from, "to": self._to, "body": body}
        self._bus.post_message(message, take)
