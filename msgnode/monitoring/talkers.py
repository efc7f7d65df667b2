"""The busiest senders and recipients, counted only while somebody asks.

An observer is attached when figures are requested, and removed when nobody has asked for PATIENCE
seconds. Counts cover a few seconds and are bounded: beyond MOST names, new ones are not counted.
Above NOTED messages per second, a random sample is counted and scaled up.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from random import randrange
from time import monotonic

import msgspec

from msgnode.bus.ports import MessageObserver
from msgnode.core.record import TrafficRecord
from msgnode.core.redaction import cut

PATIENCE = 5.0
WINDOW = 5.0
MOST = 20_000
TOP = 10
NOTED = 1_000
"""Roughly how many messages per second are sampled, to bound the cost at any rate."""

Counts = dict[tuple[str, str], list[int]]
"""Messages, bytes and failures by name and session."""


class Talker(msgspec.Struct, array_like=True):
    """A sender or an address: messages and bytes a second, and those of them that were refused.

    `session` is the id of the sending session, "" of an address.
    """

    name: str
    session: str
    messages: float
    bytes: float
    failed: float


class Talkers:
    """One a worker. `attach` gives the pipeline a tap or takes it away."""

    def __init__(
        self,
        attach: Callable[[MessageObserver | None], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._attach = attach
        self._clock = clock
        self._asked = float("-inf")
        self._began = 0.0
        self._is_attached = False
        self._stride = 1
        self._skip = 0
        self._noted = 0
        self._senders: Counts = {}
        self._addresses: Counts = {}
        self._told: tuple[list[Talker], list[Talker]] = ([], [])

    def ask(self) -> tuple[list[Talker], list[Talker]]:
        """Top senders and addresses of the last window; empty at first, then they are counted."""
        self._asked = self._clock()
        if not self._is_attached:
            self._begin()
            self._is_attached = True
            self._attach(self._note)
        return self._told

    def turn(self) -> None:
        """End a completed window, and stop if nobody asks; called every second."""
        now = self._clock()
        if not self._is_attached:
            return
        if now - self._asked > PATIENCE:
            self._attach(None)
            self._is_attached = False
            self._told = ([], [])
            self._begin()
        elif (seconds := now - self._began) >= WINDOW:
            senders = [_talker(*each, seconds) for each in _top(self._senders)]
            addresses = [_talker(*each, seconds) for each in _top(self._addresses)]
            self._told = (senders, addresses)
            self._stride = max(1, round(self._noted / seconds / NOTED))
            self._begin()

    def _begin(self) -> None:
        self._began = self._clock()
        self._noted = 0
        self._senders, self._addresses = {}, {}

    def _note(self, record: TrafficRecord, body: bytes) -> None:
        if self._skip:
            self._skip -= 1
            return
        stride = self._stride
        if stride > 1:  # a fixed step would fall in with traffic that has a rhythm
            self._skip = randrange(2 * stride - 1)  # noqa: S311 (a sample)
        self._noted += stride
        failed = stride if record.code >= 400 else 0
        for counts, key in (
            (self._senders, (record.runtime or record.sender, record.session)),
            (self._addresses, (record.to, "")),
        ):
            found = counts.get(key)
            if found is None:
                if len(counts) >= MOST:
                    continue
                found = counts[key] = [0, 0, 0]
            found[0] += stride
            found[1] += stride * record.size
            found[2] += failed


def _top(counts: Counts) -> list[tuple[tuple[str, str], list[int]]]:
    return nlargest(TOP, counts.items(), key=lambda each: each[1][0])


def _talker(key: tuple[str, str], counts: list[int], seconds: float) -> Talker:
    messages, size, failed = (round(count / seconds, 1) for count in counts)
    return Talker(cut(key[0]), key[1], messages, size, failed)
