"""Connections that come and go at once do so in turns, what is lost before what is new."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.servers import daphne_reactor
from msgnode.servers.daphne import NodeFactory
from msgnode.servers.daphne_reactor import TURN, TURN_QUEUE, NodeTransport, accept_a_few

from twisted.internet import reactor as _reactor  # isort: skip
from twisted.internet.error import ConnectionDone  # isort: skip
from twisted.internet.protocol import Factory, Protocol  # isort: skip
from twisted.internet.testing import StringTransport  # isort: skip
from twisted.python.failure import Failure  # isort: skip

reactor: Any = _reactor  # the one that daphne_reactor has installed
FEW = 2  # that fit into a turn by SlowClock


class SlowClock:
    """Each look at it takes more than half of a turn."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += TURN * 0.6
        return self.now


class Link:
    def __init__(self, told: list[Any], whose: Any) -> None:
        self._told, self._whose = told, whose

    def mark_lost(self) -> None:
        self._told.append(self._whose)


class Served:
    """What connections have read and who was lost, in the order in which it was."""

    def __init__(self, stack: ExitStack) -> None:
        self.made: list[Any] = []
        self.reads: list[tuple[Any, bytes]] = []
        self.told: list[Any] = []
        self.lost: list[Any] = []
        self._stack = stack
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        listening.setblocking(False)
        self.address = listening.getsockname()
        served = self

        class Recording(Protocol):
            def connectionMade(self) -> None:  # noqa: N802 (Twisted's name)
                self.link = Link(served.told, self)
                served.made.append(self)

            def dataReceived(self, data: bytes) -> None:  # noqa: N802 (Twisted's name)
                served.reads.append((self, data))

            def connectionLost(self, reason: Any = None) -> None:  # noqa: N802 (Twisted's name)
                served.lost.append(self)

        factory = Factory.forProtocol(Recording)
        port: Any = reactor.adoptStreamPort(listening.fileno(), socket.AF_INET, factory)
        stack.callback(port.stopListening)
        accept_a_few(port, 4)
        self.port = port

    def connect(self, number: int) -> list[socket.socket]:
        return [
            self._stack.enter_context(socket.create_connection(self.address)) for _ in range(number)
        ]

    async def connected(self, number: int) -> list[socket.socket]:
        """So many clients, whose connections are WebSockets by now."""
        clients = self.connect(number)
        await turns(lambda: len(self.made) == number)
        for each in self.made:
            each.transport.is_new = False
        return clients


async def turns(is_over: Callable[[], bool], count: Callable[[], int] = lambda: 0) -> list[int]:
    """How many more there were after each turn of the loop, until it is over."""
    more = []
    async with asyncio.timeout(10):
        while not is_over():
            before = count()
            await asyncio.sleep(0)
            more.append(count() - before)
    return more


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TURN_QUEUE, "_clock", SlowClock())


@pytest.fixture
def served() -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(stack)


def run(go: Callable[[], Awaitable[None]]) -> None:
    loop = daphne_reactor.event_loop()

    async def going() -> None:
        await go()

    loop.run_until_complete(going())


@pytest.mark.usefixtures("slow")
def test_of_many_that_are_lost_at_once_a_few_are_taken_down_in_each_turn(served: Served) -> None:
    async def go() -> None:
        for client in await served.connected(12):
            client.close()
        taken = await turns(lambda: len(served.lost) == 12, lambda: len(served.lost))
        assert 0 < max(taken) <= FEW

    run(go)


@pytest.mark.usefixtures("slow")
def test_who_waits_to_be_taken_down_is_told_at_once_and_taken_down_in_that_order(
    served: Served,
) -> None:
    async def go() -> None:
        for client in await served.connected(12):
            client.close()
        await turns(lambda: len(served.lost) + len(served.told) >= 12)
        assert len(served.lost) <= 3 * FEW
        await turns(lambda: len(served.lost) == 12)
        waited = [each for each in served.lost if each in served.told]
        assert waited == served.told

    run(go)


@pytest.mark.usefixtures("slow")
def test_of_many_that_ask_at_once_a_few_are_read_in_each_turn(served: Served) -> None:
    async def go() -> None:
        clients = served.connect(12)
        await turns(lambda: len(served.made) == 12)
        for client in clients:
            client.send(b"GET /")
        read = await turns(lambda: len(served.reads) == 12, lambda: len(served.reads))
        assert 0 < max(read) <= FEW
        assert {data for _, data in served.reads} == {b"GET /"}

    run(go)


@pytest.mark.usefixtures("slow")
def test_what_is_lost_goes_before_what_is_new_though_it_comes_later(served: Served) -> None:
    async def go() -> None:
        (open_one,) = await served.connected(1)
        clients = served.connect(9)
        await turns(lambda: len(served.made) == 10)
        for client in clients:
            client.send(b"GET /")
        await turns(lambda: bool(served.reads))
        open_one.close()
        await turns(lambda: bool(served.lost))
        assert len(served.reads) < 9
        await turns(lambda: len(served.reads) == 9)

    run(go)


@pytest.mark.usefixtures("slow")
def test_new_ones_whose_clients_have_gone_are_all_removed_and_hold_nobody_up(
    served: Served,
) -> None:
    async def go() -> None:
        (open_one,) = await served.connected(1)
        clients = served.connect(9)
        await turns(lambda: len(served.made) == 10)
        for client in clients:
            client.send(b"GET /")
            client.close()
        await turns(lambda: bool(served.reads))
        open_one.close()
        await turns(lambda: len(served.lost) == 10)
        assert len(served.reads) == 9

    run(go)


def test_an_open_websocket_is_read_at_once_however_many_wait(served: Served) -> None:
    async def go() -> None:
        (client,) = await served.connected(1)
        served.port.stopReading()
        (transport,) = (each.transport for each in served.made)
        client.send(b"frame")
        TURN_QUEUE.enter()
        TURN_QUEUE._over_at -= 10 * TURN  # others have used this turn up
        transport.doRead()
        assert [data for _, data in served.reads] == [b"frame"]

    run(go)


def test_a_request_waits_while_the_turn_is_used_up_and_is_read_though_its_client_is_gone(
    served: Served,
) -> None:
    async def go() -> None:
        (client,) = served.connect(1)
        await turns(lambda: len(served.made) == 1)
        (transport,) = (each.transport for each in served.made)
        client.send(b"GET /")
        client.close()
        TURN_QUEUE.enter()
        TURN_QUEUE._over_at -= 10 * TURN
        transport.doRead()
        assert not served.reads
        await turns(lambda: bool(served.lost))
        assert [data for _, data in served.reads] == [b"GET /"]

    run(go)


def test_no_connection_is_taken_while_the_turn_is_used_up(served: Served) -> None:
    async def go() -> None:
        served.connect(1)
        TURN_QUEUE.enter()
        TURN_QUEUE._over_at -= 10 * TURN
        served.port.doRead()
        assert not served.made
        await turns(lambda: len(served.made) == 1)

    run(go)


@pytest.mark.usefixtures("slow")
def test_one_that_is_ended_while_it_waits_is_lost_once(served: Served) -> None:
    async def go() -> None:
        for client in await served.connected(9):
            client.close()
        await turns(lambda: len(served.told) > FEW)
        waiting: NodeTransport = served.told[-1].transport
        waiting.abortConnection()
        waiting.loseConnection()
        await turns(lambda: len(served.lost) == 9)
        await turns(lambda: not reactor._lost_ones)
        assert len(set(served.lost)) == len(served.lost) == 9

    run(go)


@pytest.mark.usefixtures("slow")
def test_one_that_fails_keeps_nobody_else_from_its_turn(served: Served) -> None:
    async def go() -> None:
        clients = await served.connected(9)

        def fails(reason: Any = None) -> None:
            raise ValueError("not theirs")

        for each in served.made[4:6]:
            each.connectionLost = fails
        for client in clients:
            client.close()
        await turns(lambda: len(served.lost) == 7)

    run(go)


def test_a_websocket_that_is_lost_goes_without_a_look_for_rings() -> None:
    server = SimpleNamespace(
        protocol_disconnected=lambda protocol: None, log_action=lambda *what: None
    )
    websocket = NodeFactory(server).buildProtocol(None)
    websocket.server, websocket.client_addr = server, None
    websocket.request = SimpleNamespace(path="/ws")
    websocket.makeConnection(StringTransport())
    lost = weakref.ref(websocket)
    gc.disable()
    try:
        websocket.connectionLost(Failure(ConnectionDone()))
        del websocket
        assert lost() is None
    finally:
        gc.enable()
