"""Looks after open connections a few at a time, so that no message waits until all are looked at.

A look takes some microseconds; at all of 5,000 in one turn of the loop it holds every message up
for 30 ms. A round goes through all of them, at most AT_ONCE in a turn, at even intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

AT_ONCE = 50
ROUND, LONGEST_ROUND = 2.0, 10.0  # seconds
_EACH_SECOND = 2_000  # connections, until a round would take longer than the longest


class ConnectionRounds:
    """Calls `look` for each connection once in a round, for as long as the loop runs.

    Args:
        connections: those there are; what has gone is not looked at.
        look: looks after one. What it raises is its own business: it must not.
        call_later: calls back after so many seconds.
    """

    def __init__(
        self,
        connections: Callable[[], Collection[Any]],
        look: Callable[[Any], None],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._connections = connections
        self._look = look
        self._call_later = call_later
        self._left: list[Any] = []
        self._pause = ROUND

    def go(self) -> None:
        """Look at the next few, and come again."""
        there = self._connections()
        if not self._left:
            self._left = [*there]
            number = len(self._left)
            seconds = min(max(ROUND, number / _EACH_SECOND), LONGEST_ROUND)
            self._pause = seconds / max(1, -(-number // AT_ONCE))
        few = self._left[-AT_ONCE:]
        del self._left[-AT_ONCE:]
        for connection in few:
            if connection in there:
                self._look(connection)
        self._call_later(self._pause, self.go)
