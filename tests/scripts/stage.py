"""A port with a script behind it, in a real sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from msgnode.models import Connector
from msgnode.sandbox.process import SandboxLimits, find_deno
from msgnode.scripts import store
from msgnode.scripts.service import LIVE, Port, Scripts
from tests import waiting

SECONDS = 30.0
needs_deno = pytest.mark.skipif(not find_deno(), reason="Deno is not installed")


class Alarms:
    """Those that stand."""

    def __init__(self) -> None:
        self.standing: dict[tuple[str, str], str] = {}

    def raise_alarm(self, kind: str, subject: str, text: str) -> None:
        self.standing[kind, subject] = text

    def clear_alarm(self, kind: str, subject: str) -> None:
        self.standing.pop((kind, subject), None)


class Place:
    """The scripts of a worker, of which one port is used.

    `limits` are of its sandboxes; a starved machine is no fault of a script.
    """

    def __init__(self, name: str = "domain-registry", **limits: Any) -> None:
        self.alarms = Alarms()
        self.scripts = Scripts(SandboxLimits(**{"silence": 12.0, **limits}), self.alarms)
        self.port: Port = self.scripts.ports[name]

    async def give(self, source: str, **parts: Any) -> None:
        """Approve a version, as the command does, and have the worker use what is approved."""
        values = parts.pop("values", {})
        name = self.port.name

        def approve() -> str:
            row = store.add(name, store.checked({"source": source, **parts}, name), "a test")
            for secret, value in values.items():
                assert not store.set_secret(row, secret, value)
            return store.approve(row, "a test")

        assert await self.scripts.in_thread(approve) == ""
        await self.read()

    async def read(self) -> None:
        await self.scripts._read()

    async def live(self) -> Port:
        await waiting.so(lambda: self.port.state == LIVE)
        return self.port

    def row(self) -> Connector:
        return Connector.objects.get(port=self.port.name)


@asynccontextmanager
async def place(
    source: str = "", name: str = "domain-registry", limits: dict[str, Any] | None = None,
    **parts: Any,
) -> AsyncIterator[Place]:  # fmt: skip
    one = Place(name, **(limits or {}))
    try:
        if source:
            await one.give(source, **parts)
            await one.live()
        yield one
    finally:
        await one.scripts.stop()


def script(methods: str, handles: str = "domain-registry") -> str:
    return f'export default (node, config) => ({{ handles: "{handles}", {methods} }});'
