"""The TLS context for connections to servers of others.

It takes twenty milliseconds and more to read all certificates of the authorities that are trusted,
those of the system and of certifi. So that is done in a thread, for all connections, and anew after
KEPT_SECONDS.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpcore

KEPT_SECONDS = 3600.0
"""Time after which the certificates are read again: an operator may have changed them."""

_READER = ThreadPoolExecutor(1, "certificates")
_made: tuple[Future[ssl.SSLContext], float] | None = None


async def client_context() -> ssl.SSLContext:
    """The context that checks certificate and name of a server. Do not change it."""
    global _made
    now = time.monotonic()
    if _made is None or now - _made[1] > KEPT_SECONDS or _has_failed(_made[0]):
        _made = _READER.submit(_make), now
    return await asyncio.shield(asyncio.wrap_future(_made[0]))


def _has_failed(made: Future[ssl.SSLContext]) -> bool:
    return made.done() and made.exception() is not None


def _make() -> ssl.SSLContext:
    context = httpcore.default_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
