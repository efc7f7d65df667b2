"""Sessions are evened out between workers: who is told to come back, how many, and until when."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from msgnode.workers.rebalancing import FEWEST, ROUNDS, Rebalancing, surplus_of
from tests.node import eventually

NODE = {"here": 60, "there": 20}


class Sockets:
    """Connections with sessions; those that are ended leave at once."""

    def __init__(self, number: int) -> None:
        self.connections = {self._connection() for _ in range(number)}
        self.ended: list[float] = []

    def _connection(self, **more: Any) -> Any:
        facts = {"session": "one", "is_held_back": False, "has_frames": False} | more

        one = type("Connection", (), facts)()
        one.end = lambda code, reason: self._end(one, code)
        return one

    def busy(self, **facts: Any) -> None:
        self.connections.add(self._connection(**facts))

    def _end(self, one: Any, code: int) -> None:
        assert code == 3001
        self.connections.discard(one)
        self.ended.append(monotonic())


def of(sockets: Any, read: Any, rate: float = 1e6) -> Rebalancing:
    return Rebalancing("here", sockets, 0.01, rate, read)


@pytest.mark.parametrize(
    ("sessions", "told"),
    [
        ((60, 20), 20),
        ((20, 60), 0),
        ((44, 36), 0),  # within a tenth of the mean
        ((45, 35), 5),
        ((2 + FEWEST, 1), 0),  # not worth it
        ((90, 0, 0), 60),
        ((7,), 0),
    ],
)
def test_what_is_above_the_share_is_told_to_come_back(sessions: tuple[int, ...], told: int) -> None:
    named = {str(number): each for number, each in enumerate(sessions)}
    assert surplus_of(sessions[0], named) == told


async def test_an_order_begins_at_once_and_those_that_wait_to_be_carried_stay() -> None:
    sockets = Sockets(10)
    for facts in ({"has_frames": True}, {"is_held_back": True}, {"session": None}):
        sockets.busy(**facts)
    one = of(sockets, lambda: {"here": 12, "there": 0, "third": 0, "fourth": 0, "fifth": 0})
    one.ask({})
    await one._look()
    assert len(sockets.ended) in (8, 9)  # of 9, one of which may have frames
    assert len(sockets.connections) == 13 - len(sockets.ended)


async def test_sessions_without_a_socket_are_not_made_up_for_by_those_that_have_one() -> None:
    """As after a network of many runtimes has failed."""
    sockets = Sockets(5)
    one = of(sockets, lambda: {"here": 60, "there": 5})
    one.ask({})
    await one._look()
    assert sockets.ended == []


async def test_no_more_than_the_rate_are_told() -> None:
    sockets = Sockets(60)
    one = of(sockets, lambda: NODE, rate=50.0)
    one.ask({})
    began = monotonic()
    await one._look()
    assert len(sockets.ended) == 20
    assert monotonic() - began >= 20 / 50.0


async def test_a_worker_that_joins_is_given_its_share_once_nobody_comes_or_goes() -> None:
    sockets, seen = Sockets(60), iter([{"here": 60}, NODE, NODE])
    one = of(sockets, lambda: next(seen))
    await one._look()
    await one._look()
    assert sockets.ended == [], "it has only just come"
    await one._look()
    assert len(sockets.ended) == 20


async def test_it_ends_where_everybody_comes_back_to_the_same_worker() -> None:
    sockets, looks = Sockets(60), 0

    def read() -> dict[str, int]:
        nonlocal looks
        looks += 1
        while len(sockets.connections) < 60:
            sockets.busy()
        return NODE

    running = asyncio.create_task(of(sockets, read).run())
    async with asyncio.timeout(20):
        while looks < 3 * ROUNDS:
            await eventually()
    running.cancel()
    assert len(sockets.ended) == 20 * ROUNDS


async def test_a_database_that_is_away_ends_nothing_and_nobody() -> None:
    sockets, looks = Sockets(60), 0

    def read() -> dict[str, int]:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise OSError("away")
        return NODE

    running = asyncio.create_task(of(sockets, read).run())
    async with asyncio.timeout(20):
        while len(sockets.ended) < 20:
            await eventually()
    assert not running.done()
    running.cancel()
