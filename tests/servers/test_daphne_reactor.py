"""Connections that come and go at once do so in turns, what is lost before what is new.

The epoll of connections: lost ones are known before any is read, and passed on in portions.
"""

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

import struct

from msgnode.servers.daphne_reactor import ConnectionPoll

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

    def mark_ended(self) -> None:
        pass

    def set_gone(self, is_gone: bool) -> None:
        pass

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


RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset


class Accepted(socket.socket):
    """A connection as the poll sees it."""

    is_gone = False

    def set_gone(self, is_gone: bool) -> None:
        self.is_gone = is_gone


class Polled:
    """Pairs of sockets; what the poll tells of them, and who was gone at that time."""

    def __init__(self, stack: ExitStack, loop: asyncio.AbstractEventLoop) -> None:
        self._stack = stack
        self.told: list[tuple[str, Accepted]] = []
        self.gone: list[int] = []
        self.when_ended: Callable[[Accepted], Any] = lambda connection: None
        self.when_read: Callable[[], Any] = lambda: None
        self.poll = ConnectionPoll(loop, self._read, self._ended)
        stack.callback(lambda: loop.remove_reader(self.poll._epoll.fileno()))

    def pair(self, number: int = 1) -> list[tuple[socket.socket, Accepted]]:
        listening = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        pairs = []
        for _ in range(number):
            client = self._stack.enter_context(socket.create_connection(listening.getsockname()))
            served = self._stack.enter_context(Accepted(fileno=listening.accept()[0].detach()))
            self.poll.watch(served)
            pairs.append((client, served))
        return pairs

    def _read(self, connection: Any) -> None:
        connection.recv(100)
        self.told.append(("read", connection))
        self.gone.append(self.gone_now)
        self.when_read()

    @property
    def gone_now(self) -> int:
        return sum(each.is_gone for each in self.poll.connections)

    def _ended(self, connection: Any) -> None:
        self.told.append(("ended", connection))
        self.when_ended(connection)


@pytest.fixture
def polled() -> Iterator[Polled]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(None)
    with ExitStack() as stack:
        stack.callback(loop.close)
        made = Polled(stack, loop)
        yield made


def serve(polled: Polled) -> list[tuple[str, Accepted]]:
    """What is told in one turn."""
    polled.told.clear()
    polled.poll._serve()
    return list(polled.told)


def test_who_has_gone_is_known_before_anybody_is_read(polled: Polled) -> None:
    (speaking, heard), (leaving, lost) = polled.pair(2)
    speaking.send(b"first")
    leaving.close()
    assert serve(polled) == [("ended", lost), ("read", heard)]
    assert polled.gone == [1]


def test_one_that_is_reset_has_gone(polled: Polled) -> None:
    ((client, served),) = polled.pair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    assert serve(polled) == [("ended", served)]


def test_of_many_a_few_are_passed_on_in_each_turn_and_all_are_known(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daphne_reactor, "AT_ONCE", 2)
    pairs = polled.pair(5)
    for client, _ in pairs:
        client.close()
    assert len(serve(polled)) == 2
    assert all(served.is_gone for _, served in pairs)
    assert [len(serve(polled)) for _ in range(3)] == [2, 1, 0]


def test_more_than_a_few_that_are_ready_are_all_read_in_a_turn(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daphne_reactor, "_FEW", 2)
    for client, _ in polled.pair(5):
        client.send(b"text")
    assert len(serve(polled)) == 5


class Answering:
    """A link that notes what was read when its frames were sent."""

    def __init__(self, polled: Polled) -> None:
        self.sent_after: list[int] = []
        self._polled = polled

    def uncork(self) -> None:
        self.sent_after.append(len(self._polled.told))


def test_what_is_answered_leaves_once_all_that_were_ready_are_read(polled: Polled) -> None:
    """In the same turn of the loop, which does not run here, and even if reading one fails."""
    link = Answering(polled)
    polled.when_read = lambda: daphne_reactor.CORK.add(link)
    for client, _ in polled.pair(3):
        client.send(b"text")
    assert len(serve(polled)) == 3
    assert link.sent_after == [3, 3, 3]

    def fails() -> None:
        daphne_reactor.CORK.add(link)
        raise RuntimeError

    polled.when_read = fails
    for client, _ in polled.pair(2):
        client.send(b"text")
    with pytest.raises(RuntimeError):
        serve(polled)
    assert link.sent_after == [3, 3, 3, 1]


def test_one_that_has_gone_is_told_once_until_it_is_watched_again(polled: Polled) -> None:
    ((client, served),) = polled.pair()
    client.send(b"last words")
    client.close()
    assert serve(polled) == [("ended", served)]
    assert serve(polled) == []
    polled.poll.again(served)
    assert not served.is_gone
    assert serve(polled) == [("ended", served)]


def test_one_that_is_forgotten_because_of_another_is_not_passed_on(polled: Polled) -> None:
    (client, served), (other_client, other) = polled.pair(2)
    client.close()
    other_client.close()
    polled.when_ended = lambda connection: polled.poll.forget(
        other if connection is served else served
    )
    assert len(serve(polled)) == 1
    assert polled.gone_now == len(polled.poll.connections) == 1


def test_a_descriptor_that_is_used_anew_is_not_taken_for_the_one_that_has_gone(
    polled: Polled,
) -> None:
    ((client, served),) = polled.pair()
    client.close()
    serve(polled)
    polled.poll.forget(served)
    served.close()
    assert not served.is_gone
    ((speaking, heard),) = polled.pair()
    speaking.send(b"text")
    assert serve(polled) == [("read", heard)]


def test_watching_twice_and_forgetting_twice_is_watching_and_forgetting(polled: Polled) -> None:
    ((client, served),) = polled.pair()
    polled.poll.watch(served)
    client.send(b"text")
    assert serve(polled) == [("read", served)]
    for _ in range(2):
        polled.poll.forget(served)
    polled.poll.again(served)
    client.send(b"text")
    assert serve(polled) == []


def test_one_that_is_watched_again_before_it_was_passed_on_stays_watched(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daphne_reactor, "AT_ONCE", 0)
    ((client, served),) = polled.pair()
    client.close()
    assert serve(polled) == []
    polled.poll.again(served)
    monkeypatch.undo()
    assert serve(polled) == [("ended", served)]
