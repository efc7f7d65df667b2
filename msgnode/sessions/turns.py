"""The messages of one connection that may take more than one turn of the event loop.

These are messages with many recipients, and frames that open or close a session. All connections
share one queue (turn_queue.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from msgnode.core.faults import FAULTS

from .turn_queue import TURN_QUEUE


class Turns:
    """The unfinished messages of one connection (`under_way`), oldest first.

    While it `is_queued`, the oldest continues by itself in a later turn.

    Args:
        may_go_on: whether the next step may run now; if not, `go` is called later.
        finished: called when all are finished, if that took more than one turn.
    """

    def __init__(self, may_go_on: Callable[[], bool], finished: Callable[[], None]) -> None:
        self._may_go_on = may_go_on
        self._finished = finished
        self.under_way: deque[Iterator[None]] = deque()
        self.is_queued = False

    def add(self, steps: Iterator[None]) -> None:
        """Add the steps of a message after the unfinished ones."""
        self.under_way.append(steps)
        self.go()

    def go(self) -> None:
        """Run steps for one turn; the rest run in later turns.

        An error in a step ends its message only.
        """
        if self.is_queued:
            return
        TURN_QUEUE.enter()
        while self.under_way and self._may_go_on():
            if TURN_QUEUE.must_wait:
                self.is_queued = True
                TURN_QUEUE.wait(self._next_turn)
                return
            try:
                next(self.under_way[0])
            except StopIteration:
                self.under_way.popleft()
            except Exception as error:
                FAULTS.note("message", error)
                self.under_way.popleft()

    def break_cycle(self) -> None:
        """Break the reference cycle with the connection, which has ended."""
        self._may_go_on = bool
        self._finished = _nobody

    def _next_turn(self) -> None:
        self.is_queued = False
        self.go()
        if not self.under_way:
            self._finished()


def _nobody() -> None:
    """The `finished` callback after the connection has ended."""
