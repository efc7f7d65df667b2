"""Requests to catalogues that are slow, large or rude."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

import pytest

from msgnode.runtime.python.fetch import FetchError, fetch

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def asked(serve: Serve, seconds: float = 5.0, most: int = 1000) -> bytes:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        return (await fetch(f"http://127.0.0.1:{port}/x", seconds, most)).body
    finally:
        server.close()


async def test_a_server_that_drips_is_given_up_and_keeps_no_thread() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)

    with pytest.raises(FetchError) as given_up:
        await asked(drip, seconds=0.2)
    assert given_up.value.code == 504
    async with asyncio.timeout(10):
        while any(each.name == "catalogue" for each in threading.enumerate()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000, 502),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nxx", 504),
        (b"nonsense\r\n\r\n", 504),
        (b"", 504),
        (b"HTTP/1.1 301 Gone\r\nLocation: http://localhost:1/\r\nContent-Length: 0\r\n\r\n", 502),
    ],
    ids=["too large", "cut short", "no HTTP", "closes", "redirects"],
)
async def test_what_is_no_usable_answer(answer: bytes, code: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    with pytest.raises(FetchError) as refused:
        await asked(serve)
    assert refused.value.code == code


@pytest.mark.parametrize("url", ["http://192.0.2.1/x", "ftp://localhost/x", "file:///etc/passwd"])
async def test_what_is_not_https_is_not_asked(url: str) -> None:
    with pytest.raises(FetchError) as refused:
        await fetch(url, 1)
    assert refused.value.code == 502
