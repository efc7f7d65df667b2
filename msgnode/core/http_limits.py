"""Rate limits of HTTP requests: per kind and minute, for one client, account or key.

The workers of a node count together in Redis, with the sliding window counter of `limits`. Without
Redis, and while it does not answer, each worker counts in its own memory.

Rules
- Views ask in their own threads, so they may block on Redis, up to the storage's timeout.
- While Redis does not answer, it is retried every RETRY_AFTER seconds, not by every request.
- Memory is bounded: see rates.py. Redis drops its counts after two minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, time
from typing import TYPE_CHECKING

from .rates import LockedRates

if TYPE_CHECKING:
    from limits.errors import StorageError
    from limits.storage import Storage
    from limits.strategies import SlidingWindowCounterRateLimiter

log = logging.getLogger(__name__)

WINDOW = 60
"""The period of every limit, in seconds."""
RETRY_AFTER = 5.0


class HttpLimits:
    """One instance per process, because views have no access to the worker."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._own = LockedRates(clock)
        self._shared: SlidingWindowCounterRateLimiter | None = None
        self._ask_from = 0.0

    def share(self, storage: Storage) -> None:
        """Count in a storage that other workers share.

        Args:
            storage: a storage that raises StorageError only.
        """
        from limits.strategies import SlidingWindowCounterRateLimiter

        self._shared = SlidingWindowCounterRateLimiter(storage)

    def take(self, kind: str, who: str, per_minute: int) -> float:
        """Count one request, if it is within the limit.

        Returns:
            0, or the seconds to wait; then the request was not counted.
        """
        shared = self._asked()
        if shared is not None:
            from limits import RateLimitItemPerMinute
            from limits.errors import StorageError

            limit = RateLimitItemPerMinute(per_minute)
            try:
                if shared.hit(limit, kind, who):
                    return 0.0
                left = shared.get_window_stats(limit, kind, who).reset_time - time()
                return min(max(1.0, left), 2 * WINDOW)
            except StorageError as error:
                self._failed(error)
        return self._own.grant((kind, who), WINDOW, per_minute)

    def is_spent(self, kind: str, who: str, per_minute: int) -> bool:
        """Whether one more request would be over the limit; counts nothing."""
        shared = self._asked()
        if shared is not None:
            from limits import RateLimitItemPerMinute
            from limits.errors import StorageError

            try:
                return not shared.test(RateLimitItemPerMinute(per_minute), kind, who)
            except StorageError as error:
                self._failed(error)
        return self._own.count((kind, who), WINDOW) + 1 > per_minute

    def clear(self) -> None:
        """Forget what this process has counted."""
        self._own.clear()

    def _asked(self) -> SlidingWindowCounterRateLimiter | None:
        return self._shared if self._clock() >= self._ask_from else None

    def _failed(self, error: StorageError) -> None:
        self._ask_from = self._clock() + RETRY_AFTER
        log.warning("HTTP limits are counted by this worker alone: %s", error)


HTTP_LIMITS = HttpLimits()
