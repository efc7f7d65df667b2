"""The epoll of connections: lost ones are known before any is read, and passed on in portions."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from msgnode.servers import daphne_reactor
from msgnode.servers.daphne_reactor import ConnectionPoll

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset


class Polled:
    """Pairs of sockets; what the poll tells of them, and who was gone at that time."""

    def __init__(self, stack: ExitStack, loop: asyncio.AbstractEventLoop) -> None:
        self._stack = stack
        self.told: list[tuple[str, socket.socket]] = []
        self.gone: list[int] = []
        self.when_ended: Callable[[socket.socket], Any] = lambda connection: None
        self.poll = ConnectionPoll(loop, self._read, self._ended)
        stack.callback(lambda: loop.remove_reader(self.poll._epoll.fileno()))

    def pair(self, number: int = 1) -> list[tuple[socket.socket, socket.socket]]:
        listening = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        pairs = []
        for _ in range(number):
            client = self._stack.enter_context(socket.create_connection(listening.getsockname()))
            served = self._stack.enter_context(listening.accept()[0])
            self.poll.watch(served)
            pairs.append((client, served))
        return pairs

    def _read(self, connection: Any) -> None:
        connection.recv(100)
        self.told.append(("read", connection))
        self.gone.append(len(self.poll.gone))

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


def serve(polled: Polled) -> list[tuple[str, socket.socket]]:
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
    assert polled.poll.gone == {served.fileno() for _, served in pairs}
    assert [len(serve(polled)) for _ in range(3)] == [2, 1, 0]


def test_more_than_a_few_that_are_ready_are_all_read_in_a_turn(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daphne_reactor, "_FEW", 2)
    for client, _ in polled.pair(5):
        client.send(b"text")
    assert len(serve(polled)) == 5


def test_one_that_has_gone_is_told_once_until_it_is_watched_again(polled: Polled) -> None:
    ((client, served),) = polled.pair()
    client.send(b"last words")
    client.close()
    assert serve(polled) == [("ended", served)]
    assert serve(polled) == []
    polled.poll.again(served)
    assert not polled.poll.gone
    assert serve(polled) == [("ended", served)]


def test_one_that_is_forgotten_because_of_another_is_not_passed_on(polled: Polled) -> None:
    (client, served), (other_client, other) = polled.pair(2)
    client.close()
    other_client.close()
    polled.when_ended = lambda connection: polled.poll.forget(
        other if connection is served else served
    )
    assert len(serve(polled)) == 1
    assert len(polled.poll.gone) == len(polled.poll.connections) == 1


def test_a_descriptor_that_is_used_anew_is_not_taken_for_the_one_that_has_gone(
    polled: Polled,
) -> None:
    ((client, served),) = polled.pair()
    descriptor = served.fileno()
    client.close()
    serve(polled)
    polled.poll.forget(served)
    served.close()
    assert descriptor not in polled.poll.gone
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
