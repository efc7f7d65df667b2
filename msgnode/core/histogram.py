"""A histogram that is cheap enough for the message path."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """Counts of values by size.

    Args:
        bounds: upper bounds of the buckets, ascending, inclusive; values above the last go to an
            extra bucket.
    """

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def counts(self) -> list[int]:
        """The count of each bucket; the extra one is last."""
        return list(self._counts)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Pairs of upper bound as text and cumulative count; the last bound is "+Inf"."""
        so_far = 0
        for bound, count in zip((*self.bounds, float("inf")), tuple(self._counts), strict=True):
            so_far += count
            yield ("+Inf" if bound == float("inf") else f"{bound:g}"), so_far
