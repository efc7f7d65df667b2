"""What one connection has under way that may take more than one turn of the event loop.

That is messages with many recipients, and frames that open or close a session. All connections
stand in one line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from msgnode.core.faults import FAULTS

from .turn_line import LINE


class Turns:
    """The messages of one connection; `under_way` are those not finished yet, the oldest first.

    While it `is_in_line` the oldest goes on in a turn to come, by itself.

    Args:
        may_go_on: whether the next step may be taken now; if not, `go` is called later.
        finished: called once nothing is under way any more, if that took more than one turn.
    """

    def __init__(self, may_go_on: Callable[[], bool], finished: Callable[[], None]) -> None:
        self._may_go_on = may_go_on
        self._finished = finished
        self.under_way: deque[Iterator[None]] = deque()
        self.is_in_line = False

    def add(self, steps: Iterator[None]) -> None:
        """Take the steps of a message, behind those that are under way."""
        self.under_way.append(steps)
        self.go()

    def go(self) -> None:
        """Take steps for one turn; the rest in the next ones.

        What a step raises is the end of its message alone.
        """
        if self.is_in_line:
            return
        LINE.enter()
        while self.under_way and self._may_go_on():
            if LINE.must_wait:
                self.is_in_line = True
                LINE.wait(self._next_turn)
                return
            try:
                next(self.under_way[0])
            except StopIteration:
                self.under_way.popleft()
            except Exception as error:
                FAULTS.note("message", error)
                self.under_way.popleft()

    def let_go(self) -> None:
        """Its connection is over and adds no more: a ring of the two would stay for long."""
        self._may_go_on = bool
        self._finished = _nobody

    def _next_turn(self) -> None:
        self.is_in_line = False
        self.go()
        if not self.under_way:
            self._finished()


def _nobody() -> None:
    """Who is told when the connection is over."""
