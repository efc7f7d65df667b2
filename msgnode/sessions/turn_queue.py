"""A fair queue for work that is too long for one turn of the event loop, and what waits in it.

Messages to many recipients, and frames that open or close a session, together take at most TURN
seconds of processor time in each turn of the loop, however many connections send them; other
messages are processed in between. Waiting connections are called in order, and requeued if their
turn was too short.

`Turns` are the messages of one connection that may take more than one turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import thread_time

from msgnode.core.faults import FAULTS

TURN = 0.004


class TurnQueue:
    """One per worker.

    Args:
        clock: in seconds; by default the processor time of this thread, so that a busy machine does
            not make the turns smaller.
        seconds: the time per turn of the loop, for all work in this queue together.

    Attributes:
        is_working: whether what runs now is a step of such work.
    """

    def __init__(self, clock: Callable[[], float] = thread_time, seconds: float = TURN) -> None:
        self._clock = clock
        self._seconds = seconds
        self._waiting: deque[Callable[[], None]] = deque()
        self._over_at = 0.0
        self._blocked_until = 0.0
        self._turns_for: asyncio.AbstractEventLoop | None = None
        self._is_calling = False
        self.is_working = False

    def enter(self) -> None:
        """Call this before working; the first call in a turn of the loop starts its time."""
        loop = asyncio.get_running_loop()
        if self._turns_for is not loop:  # first call of this turn, or the loop is a new one
            self._begin(loop)

    @property
    def must_wait(self) -> bool:
        """Whether the turn's time is used up, others are queued before, or all are blocked."""
        if self._waiting and not self._is_calling:
            return True
        return not self._blocked_until <= self._clock() <= self._over_at

    @property
    def is_waited_for(self) -> bool:
        """Whether work goes on in later turns."""
        return bool(self._waiting)

    def block(self, seconds: float) -> None:
        """Let no work go on until `unblock`, but for this time at most."""
        self._blocked_until = self._clock() + seconds

    def unblock(self) -> None:
        """Let work go on in the next turn."""
        self._blocked_until = 0.0

    def wait(self, callback: Callable[[], None]) -> None:
        """Call back once, in a later turn."""
        self._waiting.append(callback)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns_for = loop
        self._over_at = self._clock() + self._seconds
        loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turns_for = None
        if not self._waiting:
            return
        self._begin(asyncio.get_running_loop())
        if self._blocked_until and self._clock() < self._blocked_until:
            return
        self._is_calling = True
        try:
            for _ in range(len(self._waiting)):
                with FAULTS.kept_to("message"):
                    self._waiting.popleft()()
                if self._clock() > self._over_at:
                    return
        finally:
            self._is_calling = False


TURN_QUEUE = TurnQueue()
"""The queue of this process, whose connections share one event loop."""


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
        self.under_way: list[Iterator[None]] = []  # few: the sender is not read meanwhile
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
            TURN_QUEUE.is_working = True
            try:
                next(self.under_way[0])
            except StopIteration:
                self.under_way.pop(0)
            except Exception as error:
                FAULTS.note("message", error)
                self.under_way.pop(0)
            finally:
                TURN_QUEUE.is_working = False

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
