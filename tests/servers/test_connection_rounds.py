"""Open connections are looked after a few at a time, each once in a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from msgnode.servers.connection_rounds import AT_ONCE, LONGEST_ROUND, ROUND, ConnectionRounds


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self._next: tuple[float, Callable[[], None]] | None = None

    @property
    def due(self) -> float:
        assert self._next is not None
        return self._next[0]

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        assert self._next is None
        self._next = (self.now + seconds, call)

    def turn(self) -> None:
        """The next turn of the loop in which something is due."""
        assert self._next is not None
        (self.now, call), self._next = self._next, None
        call()


class Server:
    def __init__(self, number: int) -> None:
        self.clock = Clock()
        self.connections = dict.fromkeys(range(number))
        self.looks: list[tuple[float, int]] = []
        self.rounds = ConnectionRounds(
            lambda: self.connections,
            lambda connection: self.looks.append((self.clock.now, connection)),
            self.clock.call_later,
        )
        self.rounds.go()

    def run(self, seconds: float) -> None:
        """Up to this time, and not what is due at it or later."""
        while self.clock.due < seconds - 1e-6:
            self.clock.turn()

    def most_in_a_turn(self) -> int:
        return max(Counter(at for at, _ in self.looks).values())


@pytest.mark.parametrize("number", [1, AT_ONCE, AT_ONCE + 1, 1_000])
def test_each_is_looked_after_once_in_a_round(number: int) -> None:
    server = Server(number)
    server.run(ROUND)
    assert sorted(each for _, each in server.looks) == list(range(number))
    assert server.clock.due == pytest.approx(ROUND)


def test_no_turn_looks_after_more_than_a_few() -> None:
    server = Server(5_000)
    server.run(2 * LONGEST_ROUND)
    assert server.most_in_a_turn() == AT_ONCE


def test_a_hundred_thousand_are_all_looked_after_within_the_longest_round() -> None:
    server = Server(100_000)
    server.run(LONGEST_ROUND)
    assert len({each for _, each in server.looks}) == 100_000
    assert server.most_in_a_turn() == AT_ONCE


def test_one_that_has_gone_meanwhile_is_not_looked_after_and_a_new_one_is_in_the_next_round() -> (
    None
):
    server = Server(3 * AT_ONCE)
    del server.connections[0]
    server.connections[-1] = None
    server.run(2 * ROUND)
    seen = [each for _, each in server.looks]
    assert 0 not in seen
    assert seen.count(-1) == 1
    assert seen.count(1) == 2


def test_rounds_go_on_when_there_is_nobody() -> None:
    server = Server(0)
    server.run(ROUND)
    server.connections[7] = None
    server.run(2 * ROUND)
    assert [each for _, each in server.looks] == [7]
