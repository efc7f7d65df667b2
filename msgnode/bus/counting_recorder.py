"""Counts the rows of the traffic record, whether or not they are kept."""

from __future__ import annotations

from msgnode.core.histogram import Histogram
from msgnode.core.record import Outcome, TrafficRecord

from .ports import Recorder


class CountingRecorder:
    """Counts messages by type and outcome, bytes, and seconds.

    Args:
        onward: keeps each row, if there is one.
    """

    def __init__(self, onward: Recorder | None = None) -> None:
        self.messages: dict[tuple[str, Outcome], int] = {}
        self.bytes = 0
        self.latencies = Histogram((20e-6, 50e-6, 100e-6, 300e-6, 1e-3, 3e-3, 10e-3, 0.1))
        self._onward = onward.note if onward is not None else None

    def note(self, record: TrafficRecord) -> None:
        """Count a row, and pass it on."""
        key = (record.type, record.outcome)
        self.messages[key] = self.messages.get(key, 0) + 1
        self.bytes += record.size
        self.latencies.observe(record.latency)
        if self._onward is not None:
            self._onward(record)
