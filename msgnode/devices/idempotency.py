"""Idempotency: requests repeated with the same `Idempotency-Key` are carried once, answered alike.

Limits per device: KEYS keys, BYTES bytes, SECONDS seconds; the oldest answered ones are dropped
first. Kept answers count towards the queue budget of the device's source; if there is no room, the
key is forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from msgnode.core.digest import digest
from msgnode.core.errors import BadMessage
from msgnode.sessions.budgets import QueueBudget

from .http import Unprocessable

KEYS = 1_000
BYTES = 1024 * 1024
SECONDS = 600.0
_MAX_KEY = 255
_OVERHEAD = 512  # bytes of memory of a key besides its answer


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to give: status and body."""

    status: int
    body: bytes
    is_problem: bool = False


@dataclass(slots=True)
class _Kept:
    request: str
    at: float
    answer: asyncio.Future[Answer] = field(default_factory=lambda: _future())
    size: int = 0


class IdempotencyKeys:
    """The keys of one device. Implements the budget's Queue."""

    def __init__(self, budget: QueueBudget | None = None) -> None:
        self.holders: tuple[str, ...] = ()
        self.waiting_bytes = 0
        self._budget = budget
        self._is_closed = False
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def charge_to(self, holders: tuple[str, ...]) -> None:
        """The budget holders of the device."""
        if self._budget is not None:
            self._budget.charge(self, holders)

    def give_up(self) -> None:
        """Drop the answered keys, because others need the room."""
        while self._forget_oldest():
            pass

    def close(self) -> None:
        """Drop everything, because the session has ended."""
        self._is_closed = True
        self.give_up()

    def begin(self, key: str, body: bytes) -> asyncio.Future[Answer] | None:
        """The answer of an earlier request under this key, to be waited for.

        Returns:
            None if this is the first, which then must call `done` or `failed`.

        Raises:
            Unprocessable: the earlier request had another body.
        """
        if len(key) > _MAX_KEY:
            raise BadMessage(f"An Idempotency-Key may have {_MAX_KEY} characters.")
        self._expire()
        request = digest(body.decode("latin1"))
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(request, time.monotonic())
            self._grow(key, kept, _OVERHEAD)
            if len(self._kept) > KEYS:
                self._forget_oldest()
            return None
        if kept.request != request:
            raise Unprocessable("This Idempotency-Key was given with another body before.")
        return kept.answer

    def done(self, key: str, answer: Answer) -> None:
        """The first request under the key was answered."""
        kept = self._kept.get(key)
        if kept is None or kept.answer.done():
            return
        kept.answer.set_result(answer)
        self._grow(key, kept, len(answer.body))
        while self.waiting_bytes > BYTES and self._forget_oldest():
            pass
        if self._is_closed:
            self.give_up()

    def failed(self, key: str) -> None:
        """The first request under the key was not carried; it may come again."""
        kept = self._kept.get(key)
        if kept is not None and not kept.answer.done():
            self._forget(key)

    def _expire(self) -> None:
        oldest_kept = time.monotonic() - SECONDS
        while self._kept and next(iter(self._kept.values())).at < oldest_kept:
            self._forget(next(iter(self._kept)))

    def _forget_oldest(self) -> bool:
        """Forget the oldest key that is answered; whether there was one."""
        oldest = next((key for key, kept in self._kept.items() if kept.answer.done()), None)
        if oldest is not None:
            self._forget(oldest)
        return oldest is not None

    def _grow(self, key: str, kept: _Kept, size: int) -> None:
        """A key takes so much more, or is forgotten."""
        if self._budget is not None and not self._budget.take(self, size):
            if kept.answer.done():
                self._forget(key)
            return
        kept.size += size
        self.waiting_bytes += size

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key)
        self.waiting_bytes -= kept.size
        if self._budget is not None and kept.size:
            self._budget.give(self, kept.size)
        if not kept.answer.done():
            kept.answer.cancel()


def _future() -> asyncio.Future[Answer]:
    return asyncio.get_running_loop().create_future()
