"""Requests that come twice under one `Idempotency-Key` are carried once and answered alike.

Bounds of one device: KEYS keys, BYTES bytes of kept answers, SECONDS seconds; the oldest go first.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from msgnode.core.digest import digest
from msgnode.core.errors import BadMessage

from .http import Unprocessable

KEYS = 1_000
BYTES = 1024 * 1024
SECONDS = 600.0
_MAX_KEY = 255


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
    """The keys of one device."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

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
            self._kept[key] = _Kept(request, time.monotonic())
            if len(self._kept) > KEYS:
                self._forget(next(iter(self._kept)))
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
        kept.size = len(answer.body)
        self._bytes += kept.size
        while self._bytes > BYTES:
            self._forget(next(iter(self._kept)))

    def failed(self, key: str) -> None:
        """The first request under the key was not carried; it may come again."""
        kept = self._kept.get(key)
        if kept is not None and not kept.answer.done():
            self._forget(key)

    def _expire(self) -> None:
        oldest_kept = time.monotonic() - SECONDS
        while self._kept and next(iter(self._kept.values())).at < oldest_kept:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key)
        self._bytes -= kept.size
        if not kept.answer.done():
            kept.answer.cancel()


def _future() -> asyncio.Future[Answer]:
    return asyncio.get_running_loop().create_future()
