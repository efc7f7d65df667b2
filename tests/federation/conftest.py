"""What tests on nodes that they share leave to the next: no session, and no address held by one."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import WebSocketException

from tests.client import Client

from .nodes import have_come

_SECONDS = 5.0
"""For a node that is killed, or frozen still."""


@pytest.fixture
async def sessions_end() -> AsyncIterator[None]:
    """The sessions of all runtimes that have come end with the test."""
    have_come.clear()
    yield
    await asyncio.gather(*map(_end, have_come))
    have_come.clear()


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The thread of each time that all trusted certificates are read, by its name."""
    found: list[str] = []
    make = ssl.create_default_context

    def noted(*args: Any, **named: Any) -> ssl.SSLContext:
        found.append(threading.current_thread().name)
        return make(*args, **named)

    monkeypatch.setattr(ssl, "create_default_context", noted)
    return found


async def _end(client: Client) -> None:
    with suppress(OSError, TimeoutError, WebSocketException):
        async with asyncio.timeout(_SECONDS):
            await client.close_session()
    client.cut()
