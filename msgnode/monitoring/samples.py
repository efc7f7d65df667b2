"""The samples of a worker per second, minute and hour: rings of fixed size. Pure: no clock, no I/O.

Rules
- A sample has the counts of a span of time, never totals since the start, and the levels at its
  end, so that samples of several workers, and of several spans, can be added.
- A ring drops its oldest sample: seconds are kept for 15 minutes. Completed minutes and hours are
  returned, to be stored elsewhere.
- Percentiles are interpolated within the bucket of a histogram.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

SECONDS_KEPT = 900
MINUTE, HOUR = 60, 3600


class Sample(msgspec.Struct, array_like=True):
    """The counts of the `seconds` before `at` (seconds since the epoch), and the levels at `at`.

    messages    recipients of messages: one per row of the record
    copies      frames delivered to listeners
    bytes_in, bytes_out    bytes of those messages, and of those copies
    refused     by admission or a policy
    undeliverable    nobody listened, or nobody accepted it
    latencies   counts per bucket, with the bounds that `percentile` is given
    cpu         seconds of processor time
    sockets, sessions, waiting    levels: open sockets, sessions, bytes in outboxes
    memory      level: bytes of the process
    machine     of stored spans only, at the end: bytes of memory of its machine, and left of it;
                bytes of the file system of the data directory, and left of it; 0 if unknown
    """

    at: float
    seconds: float = 0.0
    messages: int = 0
    copies: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    refused: int = 0
    undeliverable: int = 0
    latencies: list[int] = []
    cpu: float = 0.0
    sockets: int = 0
    sessions: int = 0
    waiting: int = 0
    memory: int = 0
    machine: list[int] = []


COUNTED = ("messages", "copies", "bytes_in", "bytes_out", "refused", "undeliverable", "cpu")
LEVELS = ("sockets", "sessions", "waiting", "memory")


def joined(samples: Sequence[Sample]) -> Sample:
    """One sample of spans that follow one another: counts added up, levels of the last."""
    whole = _added(samples)
    last = samples[-1]
    whole.at = last.at
    whole.seconds = sum(each.seconds for each in samples)
    for name in LEVELS:
        setattr(whole, name, getattr(last, name))
    return whole


def of_all_workers(samples: Sequence[Sample]) -> Sample:
    """One sample of the same span of several workers: counts and levels added up."""
    whole = _added(samples)
    whole.at = max(each.at for each in samples)
    whole.seconds = max(each.seconds for each in samples)
    for name in LEVELS:
        setattr(whole, name, sum(getattr(each, name) for each in samples))
    return whole


def percentile(share: float, counts: Sequence[int], bounds: Sequence[float]) -> float:
    """The value below which that share of values lies.

    Args:
        share: between 0 and 1.
        counts: values up to each of `bounds`, and beyond the last.
        bounds: ascending.

    Returns:
        0 if nothing was counted; the last bound for what lies beyond it.
    """
    wanted = share * sum(counts)
    if wanted <= 0:
        return 0.0
    below, lower = 0, 0.0
    for count, upper in zip(counts, bounds, strict=False):
        if below + count >= wanted:
            return lower + (upper - lower) * (wanted - below) / count
        below, lower = below + count, upper
    return lower


def rates(sample: Sample, bounds: Sequence[float]) -> dict[str, float]:
    """A sample as figures for people: a second, percent of a core, microseconds; and its levels."""
    seconds = sample.seconds or 1.0
    counted = {name: getattr(sample, name) / seconds for name in COUNTED}
    return {
        **counted,
        "cpu": 100 * counted["cpu"],
        "p50": percentile(0.5, sample.latencies, bounds) * 1e6,
        "p99": percentile(0.99, sample.latencies, bounds) * 1e6,
        **{name: getattr(sample, name) for name in LEVELS},
    }


class Rings:
    """The samples of one worker."""

    def __init__(self) -> None:
        self.seconds: deque[Sample] = deque(maxlen=SECONDS_KEPT)
        self._minute: list[Sample] = []
        self._hour: list[Sample] = []

    def add(self, sample: Sample) -> dict[int, Sample]:
        """Keep a sample of about a second; the minute and the hour that are over with it."""
        self.seconds.append(sample)
        over: dict[int, Sample] = {}
        if self._minute and _number(self._minute[-1], MINUTE) != _number(sample, MINUTE):
            over[MINUTE] = joined(self._minute)
            self._minute = []
            self._hour.append(over[MINUTE])
            if _number(self._hour[0], HOUR) != _number(sample, HOUR):
                over[HOUR] = joined(self._hour)
                self._hour = []
        self._minute.append(sample)
        return over

    def recent(self, step: int) -> list[Sample]:
        """The kept seconds, merged to spans of `step`; the last one may be shorter."""
        found: list[list[Sample]] = []
        for sample in tuple(self.seconds):
            if not found or _number(found[-1][-1], step) != _number(sample, step):
                found.append([])
            found[-1].append(sample)
        return [joined(each) for each in found]


def by_time(of_workers: Iterable[Iterable[Sample]], step: int) -> list[Sample]:
    """The samples of each worker as those of the node, added up for each span of `step` seconds."""
    spans: dict[int, dict[int, list[Sample]]] = {}
    for worker, samples in enumerate(of_workers):
        for sample in samples:
            spans.setdefault(_number(sample, step), {}).setdefault(worker, []).append(sample)
    return [
        of_all_workers([joined(each) for each in spans[number].values()])
        for number in sorted(spans)
    ]


def _number(sample: Sample, step: int) -> int:
    """Which span of `step` seconds a sample belongs to; one that ends with a span, to that."""
    return -int(-sample.at // step)


def _added(samples: Sequence[Sample]) -> Sample:
    whole = Sample(at=0.0)
    for name in COUNTED:
        setattr(whole, name, sum(getattr(each, name) for each in samples))
    longest = max((len(each.latencies) for each in samples), default=0)
    whole.latencies = [
        sum(each.latencies[n] for each in samples if n < len(each.latencies))
        for n in range(longest)
    ]
    return whole
