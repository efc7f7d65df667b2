"""Rate counters: how many messages or requests came under a key within a window.

For conditions and limits, common to workers that tell each other what they counted: a G-counter.

The count of a window slides: the present window's messages plus the share of the last window that
still lies within its length. It is exact at even rates and never forgets a burst at a boundary.

Rules
- A worker counts at once, and decides by its own count and what it knows of the others'.
- A report says how much one worker has counted in a window in all, not how much more: heard twice,
  late or in any order, through whomever, it comes to the same sum.
- Windows are numbered by the clock, so the clocks of machines have to agree as far as the shortest
  window that matters. What a clock that is ahead reports counts as present.
- Counters are bounded: beyond `max_keys` those unused for two windows go first, then the oldest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import time

MAX_KEYS = 100_000
_MAX_WORKERS = 64  # whose reports on one key are remembered, those of ended ones included
_ROOM = 16  # one part in so many is forgotten at once when there is no room

Key = tuple[str, ...]
Report = tuple[Key, int, int, int, int]
"""Key, window in seconds, number of the window, what one worker counted in it, and in the one
before."""


class Counter:
    """One key: the counts of the present window and the last, of all workers and of this one."""

    __slots__ = (
        "key", "window", "number", "present", "last", "own", "own_last", "is_told", "others",
    )  # fmt: skip

    def __init__(self, key: Key, window: int, number: float, is_told: bool) -> None:
        self.key = key
        self.window = window
        self.number = number
        self.present = self.last = self.own = self.own_last = 0
        self.is_told = is_told
        self.others: dict[str, tuple[int, int, int]] = {}

    def turn(self, number: float) -> None:
        """Go on to another window. A clock that is set back a little changes nothing."""
        ahead = number - self.number
        if ahead == -1:
            return
        self.last, self.own_last = (self.present, self.own) if ahead == 1 else (0, 0)
        self.present = self.own = 0
        self.number = number

    def report(self) -> Report | None:
        """What this worker counted, None if that is nothing."""
        if not self.own and not self.own_last:
            return None
        return self.key, self.window, int(self.number), self.own, self.own_last

    def report_of(self, worker: str) -> Report | None:
        """What another worker is known to have counted."""
        heard = self.others.get(worker)
        if heard is None or heard[0] < self.number - 1:
            return None
        return self.key, self.window, *heard

    def hear(self, worker: str, number: int, count: int, before: int) -> None:
        """Add what is new in a report of another worker."""
        newest, known, known_before = self.others.get(worker, (number, 0, 0))
        seen = {newest: known, newest - 1: known_before}
        for at, counted in ((number, count), (number - 1, before)):
            more = counted - seen.get(at, 0)
            if more > 0:
                seen[at] = counted
                if at >= self.number:
                    self.present += more
                elif at == self.number - 1:
                    self.last += more
        newest = max(newest, number)
        self.others[worker] = newest, seen.get(newest, 0), seen.get(newest - 1, 0)
        if len(self.others) > _MAX_WORKERS:
            del self.others[min(self.others, key=lambda each: self.others[each][0])]


class Rates:
    """Counters by key. `clock` gives seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time, max_keys: int = MAX_KEYS) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self._counters: dict[Key, Counter] = {}
        self._changed: list[Counter] = []
        self._is_shared = False

    def __len__(self) -> int:
        return len(self._counters)

    def count(self, key: Key, window: int) -> float:
        """Messages under the key within the last `window` seconds."""
        counter = self._counters.get(key)
        if counter is None:
            return 0
        now = self._clock()
        number = now // window
        if counter.number != number:
            counter.turn(number)
        if counter.last:
            return counter.present + counter.last * (1 - now % window / window)
        return counter.present

    def note(self, key: Key, window: int) -> float:
        """Count one more message; the count with it."""
        now = self._clock()
        number = now // window
        counter = self._counters.get(key)
        if counter is None:
            counter = self._new(key, window, number)
        elif counter.number != number:
            counter.turn(number)
        counter.present += 1
        counter.own += 1
        if counter.is_told:
            counter.is_told = False
            self._changed.append(counter)
        if counter.last:
            return counter.present + counter.last * (1 - now % window / window)
        return counter.present

    def grant(self, key: Key, window: int, limit: int) -> float:
        """Count one more, if that is within the limit.

        Returns:
            0, or the seconds until it would be within the limit; then nothing was counted.
        """
        if self.count(key, window) + 1 <= limit:
            self.note(key, window)
            return 0.0
        counter = self._counters.get(key)
        gone = self._clock() % window
        if counter is None:
            return float(window)  # the limit is 0
        if counter.present + 1 <= limit:  # it waits for the last window's share to shrink
            share = (limit - 1 - counter.present) / counter.last
            return max(0.001, window * (1 - share) - gone)
        share = max(limit - 1, 0) / counter.present
        return window - gone + window * (1 - share)

    def clear(self) -> None:
        """Forget all."""
        self._counters.clear()

    # --- several workers --------------------------------------------------------------------------

    def share(self) -> None:
        """From now on remember what changes, for `take_changed`."""
        self._is_shared = True
        self._changed = list(self._counters.values())

    def take_changed(self) -> list[Counter]:
        """The counters this worker has counted up since it was last asked."""
        changed, self._changed = self._changed, []
        for counter in changed:
            counter.is_told = True
        return changed

    def everything(self) -> list[Counter]:
        """All counters, for a worker that knows nothing yet."""
        return list(self._counters.values())

    def hear(self, worker: str, reports: Iterable[Report]) -> None:
        """Take in what another worker (its epoch) has counted."""
        for key, window, number, count, before in reports:
            present = self._clock() // window
            if number < present - 1:
                continue
            counter = self._counters.get(key)
            if counter is None:
                counter = self._new(key, window, present)
            elif counter.number != present:
                counter.turn(present)
            counter.hear(worker, number, count, before)

    # --- room -------------------------------------------------------------------------------------

    def _new(self, key: Key, window: int, number: float) -> Counter:
        if len(self._counters) >= self._max_keys:
            self._make_room()
        counter = self._counters[key] = Counter(key, window, number, self._is_shared)
        return counter

    def _make_room(self) -> None:
        now = self._clock()
        self._counters = {
            key: counter
            for key, counter in self._counters.items()
            if counter.number >= now // counter.window - 1
        }
        most = self._max_keys - max(1, self._max_keys // _ROOM)
        for key in list(self._counters)[: max(0, len(self._counters) - most)]:
            del self._counters[key]


class LockedRates(Rates):
    """Counters that threads share; other workers are told nothing of them."""

    def __init__(self, clock: Callable[[], float] = time, max_keys: int = MAX_KEYS) -> None:
        super().__init__(clock, max_keys)
        self._lock = threading.RLock()

    def count(self, key: Key, window: int) -> float:
        """How often it was counted in the last `window` seconds."""
        with self._lock:
            return super().count(key, window)

    def note(self, key: Key, window: int) -> float:
        """Count one more, whatever the limit; how many that makes."""
        with self._lock:
            return super().note(key, window)

    def grant(self, key: Key, window: int, limit: int) -> float:
        """Count one more within the limit: 0, or the seconds until there is room for it."""
        with self._lock:
            return super().grant(key, window, limit)

    def clear(self) -> None:
        """Begin anew, as tests do."""
        with self._lock:
            super().clear()
