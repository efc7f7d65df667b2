"""Rate counters: how many messages or requests a key had within a sliding window.

For conditions and limits. Workers share their counts as a G-counter.

The sliding count is that of the current window plus the share of the previous window that still
lies within the window's length. It is exact at steady rates and does not lose a burst at a window's
boundary.

Rules
- A worker counts at once, and decides by its own count plus what it knows of the others'.
- A report has the total that one worker has counted in a window, not the increase, so the sum is
  the same if reports are repeated, late, out of order or relayed.
- Windows are numbered by the clock, so the machines' clocks must agree to within the shortest
  window in use. Counts from a clock that is ahead go into the current window.
- Counters are bounded: beyond `max_keys` those unused for two windows go first, then the oldest.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterable
from time import time

MAX_KEYS = 100_000
_MAX_WORKERS = 64  # workers, ended ones included, whose reports on one key are kept
_ROOM = 16  # when there is no room, one in this many counters is dropped at once

Key = tuple[str, ...]
Report = tuple[Key, int, int, int, int]
"""Key, window in seconds, number of the window, one worker's count in it and in the one before."""


class Counter:
    """The counts of one key in the current and the previous window, of all workers and of this."""

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
        """Advance to another window. A clock that is set back a little changes nothing."""
        ahead = number - self.number
        if ahead == -1:
            return
        self.last, self.own_last = (self.present, self.own) if ahead == 1 else (0, 0)
        self.present = self.own = 0
        self.number = number

    def report(self) -> Report | None:
        """This worker's count, None if it is zero."""
        if not self.own and not self.own_last:
            return None
        return self.key, self.window, int(self.number), self.own, self.own_last

    def report_of(self, worker: str) -> Report | None:
        """The known count of another worker."""
        heard = self.others.get(worker)
        if heard is None or heard[0] < self.number - 1:
            return None
        return self.key, self.window, *heard

    def hear(self, worker: str, number: int, count: int, before: int) -> None:
        """Merge a report of another worker."""
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
        """Count one more message; return the count including it."""
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
        """Count one more, if it is within the limit.

        Returns:
            0, or the seconds to wait; then nothing was counted.
        """
        if self.count(key, window) + 1 <= limit:
            self.note(key, window)
            return 0.0
        counter = self._counters.get(key)
        gone = self._clock() % window
        if counter is None:
            return float(window)  # the limit is 0
        if counter.present + 1 <= limit:  # only the previous window's share must shrink
            share = (limit - 1 - counter.present) / counter.last
            return max(0.001, window * (1 - share) - gone)
        share = max(limit - 1, 0) / counter.present
        return window - gone + window * (1 - share)

    def clear(self) -> None:
        """Forget all."""
        self._counters.clear()

    # --- several workers --------------------------------------------------------------------------

    def share(self) -> None:
        """Start collecting changes, for `take_changed`."""
        self._is_shared = True
        self._changed = list(self._counters.values())

    def take_changed(self) -> list[Counter]:
        """The counters that this worker has increased since the last call."""
        changed, self._changed = self._changed, []
        for counter in changed:
            counter.is_told = True
        return changed

    def everything(self) -> list[Counter]:
        """All counters, for a new worker."""
        return list(self._counters.values())

    def hear(self, worker: str, reports: Iterable[Report]) -> None:
        """Merge the reports of another worker, named by its epoch."""
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
    """Thread-safe counters, not shared with other workers."""

    def __init__(self, clock: Callable[[], float] = time, max_keys: int = MAX_KEYS) -> None:
        super().__init__(clock, max_keys)
        self._lock = threading.RLock()

    def count(self, key: Key, window: int) -> float:
        """The count of the last `window` seconds."""
        with self._lock:
            return super().count(key, window)

    def note(self, key: Key, window: int) -> float:
        """Count one more, whatever the limit; return the count including it."""
        with self._lock:
            return super().note(key, window)

    def grant(self, key: Key, window: int, limit: int) -> float:
        """Count one more within the limit: 0, or the seconds until there is room for it."""
        with self._lock:
            return super().grant(key, window, limit)

    def clear(self) -> None:
        """Forget all, for tests."""
        with self._lock:
            super().clear()


def source_of(address: str) -> str:
    """The part of a network address that stands for one source.

    >>> source_of("192.0.2.1"), source_of("2001:db8::1%eth0"), source_of("")
    ('192.0.2.1', '2001:db8::/64', 'unknown')
    """
    if ":" in address:
        try:
            ip = ipaddress.IPv6Address(address.partition("%")[0])
        except ValueError:
            return address
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.IPv6Network((ip, 64), strict=False))
    return address or "unknown"
