"""Counts of values by size, cheap enough for the message path."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """`bounds` are upper limits in ascending order, inclusive; values above the last have a bucket
    of their own."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """(upper limit as text, values up to it), the last one "+Inf"."""
        so_far = 0
        for bound, count in zip((*self.bounds, float("inf")), tuple(self._counts), strict=True):
            so_far += count
            yield ("+Inf" if bound == float("inf") else f"{bound:g}"), so_far
