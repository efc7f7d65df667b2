"""Rate counters: how many messages came under a key within a window, for conditions and limits.

The count of a window slides: the present window's messages plus the share of the last window that
still lies within its length. It is exact at even rates and never forgets a burst at a boundary.

Rules
- Counters live in the memory of one worker and belong to the messages that worker took in.
- They are bounded: beyond MAX_KEYS, keys unused for two windows go first, then the oldest.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

MAX_KEYS = 100_000

Key = tuple[str, ...]


class Rates:
    """Counters by key. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic, max_keys: int = MAX_KEYS) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self._counters: dict[Key, tuple[int, int, int]] = {}
        self._windows: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._counters)

    def count(self, key: Key, window: int) -> float:
        """Messages under the key within the last `window` seconds."""
        return self._sliding(key, window)[0]

    def note(self, key: Key, window: int) -> float:
        """Count one more message; the count with it."""
        count, number, present, last = self._sliding(key, window)
        if len(self._counters) >= self._max_keys and key not in self._counters:
            self._make_room()
        self._counters[key] = (number, present + 1, last)
        self._windows[key] = window
        return count + 1

    def _sliding(self, key: Key, window: int) -> tuple[float, int, int, int]:
        now = self._clock()
        number = int(now // window)
        then, present, last = self._counters.get(key, (number, 0, 0))
        if then != number:
            present, last = 0, present if then == number - 1 else 0
        share = 1 - (now % window) / window
        return present + last * share, number, present, last

    def _make_room(self) -> None:
        now = self._clock()
        for key, (number, _, _) in list(self._counters.items()):
            if number < now // self._windows[key] - 1:
                self._drop(key)
        while len(self._counters) >= self._max_keys:
            self._drop(next(iter(self._counters)))

    def _drop(self, key: Key) -> None:
        del self._counters[key], self._windows[key]
