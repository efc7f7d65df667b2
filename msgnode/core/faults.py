"""Contained failures: counted by part, logged, and watched for repetition.

Code that does something for each of many (links, sessions, listeners, workers) catches what one of
them raises, ends that one, notes the failure here and continues with the next. `repeating` reports
the parts that keep failing, for an alarm.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic

log = logging.getLogger(__name__)

REPEATS = 5
"""This many failures of one part within WINDOW seconds count as repeating."""
WINDOW = 60.0
_LOG_EVERY = 10.0  # seconds between two logged failures of one part; the others are only counted

RESET = "reset"
"""The part for writes to a connection that its peer has reset: counted, but no fault of ours."""


class Faults:
    """One instance per process, because servers create links before the node exists."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._recent: dict[str, deque[float]] = {}
        self._logged_at: dict[str, float] = {}

    def note(self, part: str, error: BaseException | None = None) -> None:
        """Count a failure of `part`, and log `error` with its traceback, at a limited rate."""
        self.counts[part] += 1
        now = self._clock()
        if part != RESET:
            self._recent.setdefault(part, deque(maxlen=REPEATS)).append(now)
        if error is not None and now - self._logged_at.get(part, -_LOG_EVERY) >= _LOG_EVERY:
            self._logged_at[part] = now
            log.error("A failure was kept to one %s.", part, exc_info=error)

    def refuse(self, part: str, reason: str) -> None:
        """Count what a client was refused, and log `reason` in a line, at a limited rate.

        It is no failure of the node, and raises no alarm.
        """
        self.counts[part] += 1
        now = self._clock()
        if now - self._logged_at.get(part, -_LOG_EVERY) >= _LOG_EVERY:
            self._logged_at[part] = now
            number = self.counts[part]
            log.warning("A %s was refused: %s", part, reason, extra={"refused_so_far": number})

    def kept_to(self, part: str) -> _KeptTo:
        """A context manager that catches and notes what its block raises, as a fault of `part`."""
        return _KeptTo(self, part)

    def repeating(self) -> dict[str, int]:
        """The parts that have failed REPEATS times within WINDOW seconds, with their totals."""
        oldest = self._clock() - WINDOW
        return {
            part: self.counts[part]
            for part, times in tuple(self._recent.items())
            if len(times) == REPEATS and times[0] > oldest
        }


class _KeptTo:
    """The context manager; a class, because a generator would cost several times as much."""

    __slots__ = ("_faults", "_part")

    def __init__(self, faults: Faults, part: str) -> None:
        self._faults = faults
        self._part = part

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self._faults.note(self._part, error)
            return True
        return False


FAULTS = Faults()
