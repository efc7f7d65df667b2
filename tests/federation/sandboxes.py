"""Sandboxes for tests: what one says comes into a queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from msgnode.sandbox import pipe
from msgnode.sandbox.pipe import Said
from msgnode.sandbox.process import SandboxLimits, SandboxProcess, find_deno

STUBS = Path(__file__).parent / "stubs"
STUB_URL = "runtime://b.example/protostub/1"
SECONDS = 30.0

needs_deno = pytest.mark.skipif(not find_deno(), reason="Deno is not installed")

Kind = TypeVar("Kind", bound=Any)


class Watched(SandboxProcess):
    """A sandbox whose operations are waited for."""

    def __init__(self, command: list[str] | None = None, **limits: Any) -> None:
        self.queue: asyncio.Queue[Said] = asyncio.Queue()
        limits = {"silence": 12.0, **limits}  # a starved machine is no fault of the stub
        super().__init__(SandboxLimits(**limits), self.queue.put_nowait, command)

    def load(self, source: str, **configuration: Any) -> None:
        self.send(
            pipe.load(source, STUB_URL, {"runtimeURL": "runtime://a.example/mn-1", **configuration})
        )

    async def next(self, kind: type[Kind]) -> Kind:
        async with asyncio.timeout(SECONDS):
            while True:
                said = await self.queue.get()
                if isinstance(said, kind):
                    return said

    async def message(self) -> dict[str, Any]:
        return json.loads(bytes((await self.next(pipe.Posted)).message))

    async def end(self) -> str:
        async with asyncio.timeout(SECONDS):
            return await self.ended()


@asynccontextmanager
async def sandbox(**limits: Any) -> AsyncIterator[Watched]:
    one = Watched(**limits)
    await one.start()
    try:
        yield one
    finally:
        one.kill("the test is over")
        await one.end()


def stub(name: str) -> str:
    return (STUBS / f"{name}.js").read_text()


def acting(code: str) -> str:
    """A stub that does something when it is told to connect."""
    return f"""export default class {{
      _start(url, bus, config) {{ Object.assign(this, {{ url, bus, config }}); }}
      connect() {{ const {{ url, bus, config }} = this; {code} }}
    }}"""
