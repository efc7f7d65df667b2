"""A peer that does not read: what waits for it is bounded, and nothing of it stays for ever."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from msgnode.core.back_off import BackOff
from msgnode.federation import sockets as stub_sockets
from msgnode.federation.sockets import SocketLimits, StubSockets
from msgnode.federation.states import SessionWatch
from msgnode.sandbox import pipe
from tests import waiting

from .test_stub_sockets import HOSTS, LOOPBACK, Lines, sockets, wanted

_ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT = "x" * 65_536
_MANY = 120
"""Such texts: more than the kernel keeps, and less than may wait."""
_HELD = 1 << 20
_AT_ONCE = 10.0

pytestmark = pytest.mark.asyncio


class Deaf:
    """A server that takes WebSockets and reads nothing of them; `says` is what it sends first."""

    def __init__(self, says: bytes = b"") -> None:
        self.url = ""
        self.links: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._says = says

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        [key] = [each[18:].strip() for each in head.split(b"\r\n") if b"WebSocket-Key:" in each]
        proof = base64.b64encode(hashlib.sha1(key + _ACCEPT).digest())  # noqa: S324  (RFC 6455)
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n")
        writer.write(b"Connection: Upgrade\r\nSec-WebSocket-Accept: " + proof + b"\r\n\r\n")
        writer.write(self._says)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
        self.links.append((reader, writer))


@asynccontextmanager
async def deaf(says: bytes = b"") -> AsyncIterator[Deaf]:
    one = Deaf(says)
    listens = socket.socket()
    listens.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # the kernel keeps little
    listens.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(one.serve, sock=listens, limit=_HELD)
    one.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
    try:
        yield one
    finally:
        server.close()
        for _, writer in one.links:
            writer.transport.abort()


async def hears_the_end(peer: Deaf) -> None:
    """Read what was sent until the other side has ended the connection."""
    reader, writer = peer.links[0]
    writer.transport.resume_reading()  # type: ignore[attr-defined]  # of a socket
    async with asyncio.timeout(_AT_ONCE):
        try:
            while await reader.read(_HELD):
                pass
        except ConnectionError:
            pass


async def test_case_57_what_a_peer_does_not_read_is_bounded_and_then_its_socket_ends() -> None:
    async with deaf() as peer:
        lines = Lines()
        one = sockets(lines)
        one.want(wanted(peer.url))
        await lines.next("open")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        number = 0
        while one.count and number < 2_000:
            number += 1
            one.send(pipe.SocketSend(ws=1, data=_TEXT))
            if number == _MANY:
                assert one.is_full, "no more is handed to the stub"
            await asyncio.sleep(0)
        closed = await lines.next("close")
        assert (closed["code"], closed["reason"]) == (1006, "the peer does not read")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 * 1024, f"{grown} KiB"
        assert number * len(_TEXT) < 32 * 1024 * 1024
        assert not one.is_full
        await hears_the_end(peer)
        await one.end()


async def test_case_57_a_peer_that_stops_reading_is_left_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stub_sockets, "UNREAD_SECONDS", 0.5)
    async with deaf() as peer:
        lines = Lines()
        one = sockets(lines)
        one.want(wanted(peer.url))
        await lines.next("open")
        for _ in range(_MANY):
            one.send(pipe.SocketSend(ws=1, data=_TEXT))
        closed = await lines.next("close")
        assert "does not read" in closed["reason"]
        assert one.count == 0
        await hears_the_end(peer)
        await one.end()


async def test_case_57_one_that_says_what_it_may_not_and_does_not_read_is_left_too() -> None:
    async with deaf(says=b"\x82\x01x") as peer:  # a binary frame
        lines = Lines()
        limits = SocketLimits(HOSTS, LOOPBACK)
        held = asyncio.Event()

        async def ready() -> None:
            await held.wait()

        one = StubSockets(limits, BackOff(0.25, 30.0), lines, ready, SessionWatch())
        one.want(wanted(peer.url))
        await lines.next("open")
        for _ in range(_MANY):
            one.send(pipe.SocketSend(ws=1, data=_TEXT))
        await waiting.so(lambda: one.is_full)
        held.set()
        async with asyncio.timeout(_AT_ONCE):
            assert (await lines.next("close"))["ws"] == 1
        assert one.count == 0
        await hears_the_end(peer)
        await one.end()


async def test_case_57_the_end_of_a_sandbox_does_not_wait_for_a_peer_that_does_not_read() -> None:
    async with deaf() as peer:
        lines = Lines()
        one = sockets(lines)
        one.want(wanted(peer.url))
        await lines.next("open")
        for _ in range(_MANY):
            one.send(pipe.SocketSend(ws=1, data=_TEXT))
        async with asyncio.timeout(5):
            await one.end()
        assert one.count == 0
        await hears_the_end(peer)
