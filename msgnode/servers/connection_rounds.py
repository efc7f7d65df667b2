"""Checks open connections a few at a time, so that no message waits until all are checked.

A check takes some microseconds; 5,000 of them in one turn of the loop would delay every message by
30 ms. A round checks all of them, at most AT_ONCE per turn, at even intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

AT_ONCE = 50
ROUND, LONGEST_ROUND = 2.0, 10.0  # seconds
_EACH_SECOND = 2_000  # connections, until a round would take longer than the longest


class ConnectionRounds:
    """Calls `look` once per round for each connection, for as long as the loop runs.

    Args:
        connections: the open connections; closed ones are skipped.
        look: checks one connection. It must not raise.
        call_later: schedules a call after so many seconds.
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
        """Check the next few connections, and schedule the next call."""
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
