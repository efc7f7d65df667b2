"""Sockets of stubs: opened by the node, where they may lead, no faster than the back-off allows."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from msgnode.core.back_off import BackOff
from msgnode.core.faults import FAULTS
from msgnode.federation.sockets import SocketLimits, StubSockets, socket_fault
from msgnode.federation.states import SessionWatch
from msgnode.sandbox import pipe
from tests.certificates import certificate

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]
HOSTS = frozenset({"b.example", "127.0.0.1"})
SECONDS = 30.0


class Peer:
    """A server that echoes, and counts who comes."""

    def __init__(self) -> None:
        self.visits = 0
        self.refuses = False
        self.server: Server | None = None

    @property
    def url(self) -> str:
        assert self.server is not None
        return f"ws://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/ws"

    async def serve(self, link: ServerConnection) -> None:
        self.visits += 1
        if self.refuses:
            return
        async for text in link:
            await link.send(text)


@pytest_asyncio.fixture
async def peer() -> AsyncIterator[Peer]:
    one = Peer()
    async with serve(one.serve, "127.0.0.1", 0, close_timeout=0.2) as one.server:
        yield one


class Lines:
    """What a sandbox is told."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def __call__(self, line: bytes) -> None:
        import json

        self.queue.put_nowait(json.loads(line))

    async def next(self, event: str) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            while (line := await self.queue.get())["event"] != event:
                pass
            return line


async def _ready() -> None:
    """The node takes everything at once."""


def sockets(lines: Lines, networks: Any = LOOPBACK, **more: Any) -> StubSockets:
    return StubSockets(
        SocketLimits(HOSTS, networks), BackOff(0.25, 30.0), lines, _ready, SessionWatch(), **more
    )


def wanted(url: str, number: int = 1) -> pipe.SocketWanted:
    return pipe.SocketWanted(ws=number, url=url)


@pytest.mark.asyncio
async def test_text_passes_both_ways(peer: Peer) -> None:
    lines = Lines()
    one = sockets(lines)
    one.want(wanted(peer.url))
    await lines.next("open")
    one.send(pipe.SocketSend(ws=1, data="hello"))
    assert (await lines.next("message"))["data"] == "hello"
    one.close(pipe.SocketClose(ws=1))
    await lines.next("close")
    assert one.count == 0
    await one.end()


@pytest.mark.asyncio
async def test_what_is_written_to_a_socket_that_is_no_more_is_counted(peer: Peer) -> None:
    lines = Lines()
    one = sockets(lines)
    one.want(wanted(peer.url))
    await lines.next("open")
    assert one.is_open
    one.close(pipe.SocketClose(ws=1))
    await lines.next("close")
    one.send(pipe.SocketSend(ws=1, data="late"))
    assert (one.is_open, one.lost) == (False, 1)
    await one.end()


@pytest.mark.parametrize(
    "url",
    [
        "ws://b.example/ws",
        "wss://evil.example/ws",
        "wss://b.example.evil.example/ws",
        "wss://user@b.example/ws",
        "https://b.example/",
        "wss://",
        "wss://[",
    ],
)
def test_case_24_a_socket_leads_to_the_peer_over_tls_or_nowhere(url: str) -> None:
    assert socket_fault(url, frozenset({"b.example"}), (), ("wss", "ws"))


@pytest.mark.asyncio
async def test_case_24_a_stub_has_two_sockets_at_most(peer: Peer) -> None:
    lines = Lines()
    one = sockets(lines)
    for number in (1, 2):
        one.want(wanted(peer.url, number))
        await lines.next("open")
    one.want(wanted(peer.url, 3))
    closed = await lines.next("close")
    assert (closed["ws"], closed["code"]) == (3, 1006)
    assert one.refused == 1
    await one.end()


@pytest.mark.asyncio
@pytest.mark.parametrize("found", [["127.0.0.1"], ["10.0.0.7"], ["::1"], ["8.8.8.8", "127.0.0.1"]])
async def test_case_8_a_name_that_leads_to_an_address_that_is_not_public_is_refused(
    found: list[str],
) -> None:
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return found

    lines = Lines()
    one = sockets(lines, networks=(), resolve=resolve)
    one.want(wanted("wss://b.example/ws"))
    assert "does not connect to" in (await lines.next("close"))["reason"]
    assert asked == ["b.example"]
    await one.end()


@pytest.mark.asyncio
async def test_a_socket_without_tls_leads_to_the_listed_networks_alone() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["8.8.8.8"]

    lines = Lines()
    one = sockets(lines, resolve=resolve)
    one.want(wanted("ws://b.example/ws"))
    assert "without TLS" in (await lines.next("close"))["reason"]
    await one.end()


@pytest.mark.asyncio
async def test_the_certificates_that_are_trusted_are_not_read_where_messages_are_carried(
    tmp_path: Path, readers: list[str]
) -> None:
    """The peer has a certificate that nobody has signed, so its stub comes again and again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path).both)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    lines = Lines()
    one = sockets(lines)
    for number in range(3):
        one.hurry()
        one.want(wanted(f"wss://127.0.0.1:{port}/ws", number + 1))
        assert "certificate" in (await lines.next("close"))["reason"]
    await one.end()
    server.close()
    assert threading.main_thread().name not in readers
    assert len(readers) <= 1, "once for all connections"


@pytest.mark.asyncio
async def test_case_29_a_stub_that_comes_back_at_once_comes_no_faster_than_the_back_off(
    peer: Peer,
) -> None:
    peer.refuses = True
    lines = Lines()
    one = sockets(lines)
    loop = asyncio.get_running_loop()
    until, number = loop.time() + 2.0, 0
    while loop.time() < until:
        number += 1
        one.want(wanted(peer.url, number))
        async with asyncio.timeout(SECONDS):
            while not one.count and loop.time() < until:  # noqa: ASYNC110  (nobody tells)
                await asyncio.sleep(0)
        await asyncio.sleep(0.001)
    assert number > 30, "the stub has asked often"
    assert peer.visits <= 9, "0.125 to 0.25 s and doubling"
    await one.end()


@pytest.mark.asyncio
async def test_case_58_a_peer_that_floods_is_read_no_faster_than_it_may() -> None:
    async def floods(link: ServerConnection) -> None:
        for number in range(600):
            await link.send(str(number))
        await link.wait_closed()

    async with serve(floods, "127.0.0.1", 0) as server:
        lines = Lines()
        limits = SocketLimits(HOSTS, LOOPBACK, messages_per_second=200.0)
        one = StubSockets(limits, BackOff(0.25, 30.0), lines, _ready, SessionWatch())
        began = asyncio.get_running_loop().time()
        one.want(wanted(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"))
        for number in range(600):
            assert (await lines.next("message"))["data"] == str(number)
        assert asyncio.get_running_loop().time() - began > 1.5  # 600, of which 200 at once
        await one.end()


@pytest.mark.asyncio
async def test_so_many_short_texts_wait_for_a_peer_that_does_not_read_as_memory_allows(
    peer: Peer,
) -> None:
    lines = Lines()
    one = sockets(lines)
    one.want(wanted(peer.url))
    await lines.next("open")
    for _ in range(40_000):
        one.send(pipe.SocketSend(ws=1, data=""))
    async with asyncio.timeout(SECONDS):
        assert "does not read" in (await lines.next("close"))["reason"]
    await one.end()


@pytest.mark.asyncio
async def test_case_6_a_redirect_of_a_socket_is_not_followed_and_no_fault_of_the_node() -> None:
    asked: list[str] = []

    def redirects(link: ServerConnection, request: Request) -> Response:
        asked.append(request.path)
        return Response(302, "Found", Headers(Location="ws://127.0.0.1:1/other"), b"")

    async with serve(Peer().serve, "127.0.0.1", 0, process_request=redirects) as server:
        lines, faults = Lines(), FAULTS.counts.total()
        one = sockets(lines)
        one.want(wanted(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"))
        assert "redirect" in (await lines.next("close"))["reason"]
        assert (asked, FAULTS.counts.total()) == (["/ws"], faults)
        await one.end()


@pytest.mark.asyncio
async def test_subprotocols_that_are_none_are_refused_and_no_fault_of_the_node(peer: Peer) -> None:
    lines, faults = Lines(), FAULTS.counts.total()
    one = sockets(lines)
    one.want(pipe.SocketWanted(ws=1, url=peer.url, protocols=["a b\r\nX: y"]))
    assert "subprotocol" in (await lines.next("close"))["reason"]
    assert (peer.visits, FAULTS.counts.total()) == (0, faults)
    await one.end()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "frames",
    [b"\x81\x02\xff\xfe", b"\x83\x00", b"\x81\x7f" + b"\xff" * 8, b"\x88\x01\x00", b"\x00" * 9],
)
async def test_frames_that_are_none_end_the_socket_and_are_no_fault_of_the_node(
    frames: bytes,
) -> None:
    async def forges(link: ServerConnection) -> None:
        link.transport.write(frames)
        await link.wait_closed()

    async with serve(forges, "127.0.0.1", 0) as server:
        lines, faults = Lines(), FAULTS.counts.total()
        one = sockets(lines)
        one.want(wanted(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"))
        await lines.next("close")
        assert FAULTS.counts.total() == faults
        assert one.count == 0
        await one.end()


def test_delays_double_up_to_the_longest_and_begin_anew_after_a_while_of_success() -> None:
    now = [0.0]
    one = BackOff(1.0, 60.0, stable=60.0, clock=lambda: now[0])
    delays = [one.failed() for _ in range(10)]
    assert 0.5 <= delays[0] <= 1.0
    assert 4.0 <= delays[3] <= 8.0
    assert max(delays) <= 60.0
    one.succeeded()
    now[0] = 59.0
    assert one.in_a_row == 10
    assert one.failed() > 15.0, "that was no success"
    one.succeeded()
    now[0] = 200.0
    assert one.in_a_row == 0
    assert one.failed() <= 1.0
