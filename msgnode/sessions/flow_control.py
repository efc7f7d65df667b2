"""Back-pressure on one sender: what must happen before its next frame is read.

A sender is paused, never buffered without bound, while
- a reader it sends to lags (a reader that lags for too long is ended: session.py),
- its message needs a fact that is being fetched,
- it, or all connections of its source together, have as many pending answers as allowed,
- its credit is used up: token buckets of messages and of bytes. A message is charged after it was
  read and waited for afterwards, so a large one is slowed down and not refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from msgnode.bus.ports import Listener
from msgnode.core.pending import Pending
from msgnode.core.token_bucket import TokenBucket

from .budgets import AnswerBudget, source

MAX_DEBT = 20.0
"""Most seconds that a sender is paused for one message, whatever its cost; less than the time in
which a ping must be answered."""
MAX_PENDING = 512
"""Answers that the node owes a sender: with these under way, its work waits for something else."""
_PORTION = 0.1
"""The share of a bucket that must be refilled before the sender resumes, to batch the work."""


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of one sender.

    Attributes:
        messages_per_second: credit of messages; a burst may have one second's worth.
        bytes_per_second: the same in bytes of frames.
        max_pending: most pending answers; the sender resumes when half of them are given.
        answers: the budget that the connections of one source share.
    """

    messages_per_second: float
    bytes_per_second: float
    max_pending: int = MAX_PENDING
    answers: AnswerBudget | None = None


class FlowControl:
    """Tracks what one sender waits for, and calls `release` whenever it may be able to resume."""

    def __init__(
        self, limits: FlowLimits, remote_address: str, release: Callable[[], None]
    ) -> None:
        self.frames = 0  # read since it connected
        self.frames_bytes = 0
        self.readers_behind = 0
        self.unknown_facts = 0
        self.pending_answers = 0
        self._limits = limits
        self._release = release
        self._source = source(remote_address)
        self._is_queued = False  # whether it waits until its source has fewer pending answers
        self._messages = TokenBucket(limits.messages_per_second)
        self._bytes = TokenBucket(limits.bytes_per_second)
        self._refill: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    # --- what is counted --------------------------------------------------------------------------

    def frame_read(self, size: int) -> bool:
        """Charge for a frame that was read and carried.

        Returns:
            Whether the sender may have to wait; `must_wait` tells for certain.
        """
        self.frames += 1
        self.frames_bytes += size
        messages, bytes_ = self._messages, self._bytes
        messages.left -= 1
        bytes_.left -= size
        limits = self._limits
        answers = limits.answers
        return bool(
            messages.left < 0
            or bytes_.left < 0
            or self.pending_answers >= limits.max_pending
            or self.readers_behind
            or self.unknown_facts
            or (answers is not None and answers.pending >= answers.least)
        )

    def charge(self, messages: int, size: int) -> None:
        """Charge for the cost of a message beyond its own frame."""
        limits = self._limits
        least = -MAX_DEBT * limits.messages_per_second
        self._messages.left = max(self._messages.left - messages, least)
        self._bytes.left = max(self._bytes.left - size, -MAX_DEBT * limits.bytes_per_second)

    def answer_pending(self, change: int) -> None:
        """Change the number of pending answers."""
        self.pending_answers += change
        if self._limits.answers is not None:
            self._limits.answers.count(self._source, change)
        if change < 0 and self.pending_answers <= self._limits.max_pending // 2:
            self._release()

    def wait_for_reader(self, reader: Listener) -> None:
        """Pause until a lagging reader has caught up."""
        self.readers_behind += 1
        reader.when_writable(self._reader_caught_up)

    def wait_for_fact(self, fact: Pending, then: Callable[[], None] | None = None) -> None:
        """Pause until a fact is known; `then` is called before the sender resumes."""

        def known() -> None:
            self.unknown_facts -= 1
            if then is not None:
                then()
            self._loop.call_soon(self._release)

        self.unknown_facts += 1
        fact.when_known(known)

    # --- what follows from it ---------------------------------------------------------------------

    @property
    def is_choked(self) -> bool:
        """Whether the message being processed must wait for a reader or for answers."""
        return bool(self.readers_behind) or self.pending_answers >= self._limits.max_pending

    def must_wait(self) -> bool:
        """Whether the sender's next frame must wait; if so, `release` will be called."""
        if self.readers_behind or self.unknown_facts:
            return True
        if self.pending_answers >= self._limits.max_pending:
            return True
        answers = self._limits.answers
        if answers is not None and answers.is_full(self._source):
            if not self._is_queued:
                self._is_queued = True
                answers.when_less(self._source, self._source_has_room)
            return True
        if self._messages.left >= 0 and self._bytes.left >= 0:
            return False
        self._messages.refill()
        self._bytes.refill()
        if self._messages.left >= 0 and self._bytes.left >= 0:
            return False
        if self._refill is None:
            self._refill = self._loop.call_later(self.seconds_until_credit(), self._refilled)
        return True

    def seconds_until_credit(self) -> float:
        """Seconds until both buckets are refilled enough to resume."""
        return max(self._messages.seconds_until(_PORTION), self._bytes.seconds_until(_PORTION))

    def stop(self) -> None:
        """Cancel the timer: the connection has ended."""
        if self._refill is not None:
            self._refill.cancel()

    def break_cycle(self) -> None:
        """Break the reference cycle with the connection, which has ended."""
        self._release = _nobody

    def _reader_caught_up(self) -> None:
        self.readers_behind -= 1
        self._loop.call_soon(self._release)

    def _source_has_room(self) -> None:
        self._is_queued = False
        self._loop.call_soon(self._release)

    def _refilled(self) -> None:
        self._refill = None
        self._release()


def _nobody() -> None:
    """The release callback after the connection has ended."""
