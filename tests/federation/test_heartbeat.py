"""Whether a peer is there: one that is held back, and so is read late, is not taken for gone."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from websockets.asyncio.server import ServerConnection, serve

from msgnode.core.back_off import BackOff
from msgnode.federation import sockets as stub_sockets
from msgnode.federation.sockets import SocketLimits, StubSockets
from msgnode.federation.states import SessionWatch

from .test_slow_peer import deaf
from .test_stub_sockets import HOSTS, LOOPBACK, Lines, sockets, wanted

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heart that beats 20 times as fast."""
    monkeypatch.setattr(stub_sockets, "HEARTBEAT_SECONDS", 0.25)
    monkeypatch.setattr(stub_sockets, "SILENCE_SECONDS", 1.0)


async def test_a_peer_that_floods_keeps_its_socket_though_its_pongs_are_read_late() -> None:
    """Its pong stands behind what it said before, and that is read as fast as it may say it."""

    async def floods(link: ServerConnection) -> None:
        with contextlib.suppress(Exception):
            for number in range(4_000):
                await link.send(str(number))
            await link.wait_closed()

    async with serve(floods, "127.0.0.1", 0, max_queue=None) as server:
        lines = Lines()
        limits = SocketLimits(HOSTS, LOOPBACK, messages_per_second=1_000.0)
        one = StubSockets(limits, BackOff(0.25, 30.0), lines, _ready, SessionWatch())
        one.want(wanted(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"))
        for number in range(4_000):
            assert (await lines.next("message"))["data"] == str(number)
        assert one.is_open
        await one.end()


async def test_a_peer_that_is_held_back_by_the_node_keeps_its_socket() -> None:
    gate = asyncio.Event()

    async def held() -> None:
        await gate.wait()

    async def greets(link: ServerConnection) -> None:
        with contextlib.suppress(Exception):
            for number in range(100):
                await link.send(str(number))
            await link.wait_closed()

    async with serve(greets, "127.0.0.1", 0) as server:
        lines = Lines()
        one = StubSockets(
            SocketLimits(HOSTS, LOOPBACK), BackOff(0.25, 30.0), lines, held, SessionWatch()
        )
        one.want(wanted(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"))
        await lines.next("open")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await lines.next("close")
        gate.set()
        for number in range(100):
            assert (await lines.next("message"))["data"] == str(number)
        await one.end()


async def test_a_peer_that_is_silent_and_answers_is_there() -> None:
    async def answers(link: ServerConnection) -> None:
        await link.wait_closed()

    async with serve(answers, "127.0.0.1", 0) as server:
        lines = Lines()
        one = sockets(lines)
        one.want(wanted(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"))
        await lines.next("open")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await lines.next("close")
        assert one.is_open
        await one.end()


async def test_a_peer_that_answers_nothing_is_gone() -> None:
    async with deaf() as peer:
        lines = Lines()
        one = sockets(lines)
        one.want(wanted(peer.url))
        await lines.next("open")
        began = asyncio.get_running_loop().time()
        closed = await lines.next("close")
        assert 1.0 <= asyncio.get_running_loop().time() - began < 6.0
        assert "has not answered" in closed["reason"]
        assert one.count == 0


async def _ready() -> None:
    """The node takes everything at once."""
