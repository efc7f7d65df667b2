"""Back-pressure on one sender: what it must wait for before its next frame is read.

A sender is held back, never buffered without bound, while
- a reader it sends to is behind (that reader is ended if it takes too long: session.py),
- what it says needs a fact that is on its way,
- it has as many answers under way as it may have, itself or all of its source together,
- its credit is used up: two token buckets, of messages and of bytes. What was read is paid first
  and waited for afterwards, so that one large message costs time and is not refused.
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
"""Seconds a sender is held back for one message at most, whatever it cost; shorter than the time
in which a ping is to be answered."""
_PORTION = 0.1
"""The part of a bucket that is refilled before the sender goes on: work comes in portions."""


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of one sender.

    Attributes:
        messages_per_second: credit of messages; one second's worth may come at once.
        bytes_per_second: the same in bytes of frames.
        max_pending: answers under way; it goes on when half of them are given.
        answers: what the connections of one source may have under way together.
    """

    messages_per_second: float
    bytes_per_second: float
    max_pending: int
    answers: AnswerBudget | None = None


class FlowControl:
    """Counts what one sender waits for, and calls `release` whenever that may be over."""

    def __init__(
        self, limits: FlowLimits, remote_address: str, release: Callable[[], None]
    ) -> None:
        self.frames = 0  # read since it connected, and their bytes
        self.frames_bytes = 0
        self.readers_behind = 0
        self.unknown_facts = 0
        self.pending_answers = 0
        self._limits = limits
        self._release = release
        self._source = source(remote_address)
        self._in_line = False  # to be released when its source has fewer answers under way
        self._messages = TokenBucket(limits.messages_per_second)
        self._bytes = TokenBucket(limits.bytes_per_second)
        self._refill: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    # --- what is counted --------------------------------------------------------------------------

    def frame_read(self, size: int) -> bool:
        """One frame of so many bytes was read and carried.

        Returns:
            Whether there may be something to wait for: `must_wait` knows.
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
        """A message costs so much besides its own frame."""
        limits = self._limits
        least = -MAX_DEBT * limits.messages_per_second
        self._messages.left = max(self._messages.left - messages, least)
        self._bytes.left = max(self._bytes.left - size, -MAX_DEBT * limits.bytes_per_second)

    def answer_pending(self, change: int) -> None:
        """Answers more or fewer under way."""
        self.pending_answers += change
        if self._limits.answers is not None:
            self._limits.answers.count(self._source, change)
        if change < 0 and self.pending_answers <= self._limits.max_pending // 2:
            self._release()

    def wait_for_reader(self, reader: Listener) -> None:
        """A reader is behind."""
        self.readers_behind += 1
        reader.when_writable(self._reader_caught_up)

    def wait_for_fact(self, fact: Pending, then: Callable[[], None] | None = None) -> None:
        """A fact is on its way; `then` is called with it, before the sender goes on."""

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
        """Whether a message that is under way must wait: for a reader, or for answers."""
        return bool(self.readers_behind) or self.pending_answers >= self._limits.max_pending

    def must_wait(self) -> bool:
        """Whether the sender's next frame must wait; if so `release` is called in time."""
        if self.readers_behind or self.unknown_facts:
            return True
        if self.pending_answers >= self._limits.max_pending:
            return True
        answers = self._limits.answers
        if answers is not None and answers.is_full(self._source):
            if not self._in_line:
                self._in_line = True
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
        """Seconds until the emptier bucket has a portion again."""
        return max(self._messages.seconds_until(_PORTION), self._bytes.seconds_until(_PORTION))

    def stop(self) -> None:
        """Nobody waits any more."""
        if self._refill is not None:
            self._refill.cancel()

    def let_go(self) -> None:
        """Its connection is over and is called no more: a ring of the two would stay for long."""
        self._release = _nobody

    def _reader_caught_up(self) -> None:
        self.readers_behind -= 1
        self._loop.call_soon(self._release)

    def _source_has_room(self) -> None:
        self._in_line = False
        self._loop.call_soon(self._release)

    def _refilled(self) -> None:
        self._refill = None
        self._release()


def _nobody() -> None:
    """Who is to be released when the connection is over."""
