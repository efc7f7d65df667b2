"""Messages with many recipients, carried in turns of the event loop so that others get theirs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter

from msgnode.core.faults import FAULTS

TURN = 0.002
"""Seconds of one turn of the loop that a message with many recipients may take."""


class Turns:
    """The messages of one connection that are under way, the oldest first.

    Args:
        may_go_on: whether the next step may be taken now; if not, `go` is called later.
        finished: called once nothing is under way any more, if that took more than one turn.
    """

    def __init__(self, may_go_on: Callable[[], bool], finished: Callable[[], None]) -> None:
        self._may_go_on = may_go_on
        self._finished = finished
        self._under_way: deque[Iterator[None]] = deque()
        self._next: asyncio.Handle | None = None

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def add(self, steps: Iterator[None]) -> None:
        """Take the steps of a message, behind those that are under way."""
        self._under_way.append(steps)
        self.go()

    def go(self) -> None:
        """Take steps for one turn; the rest in the next ones.

        What a step raises is the end of its message alone.
        """
        until = perf_counter() + TURN
        while self._under_way and self._may_go_on():
            if perf_counter() > until:
                if self._next is None:
                    self._next = asyncio.get_running_loop().call_soon(self._next_turn)
                return
            try:
                next(self._under_way[0])
            except StopIteration:
                self._under_way.popleft()
            except Exception as error:
                FAULTS.note("message", error)
                self._under_way.popleft()

    def _next_turn(self) -> None:
        self._next = None
        self.go()
        if not self._under_way:
            self._finished()
