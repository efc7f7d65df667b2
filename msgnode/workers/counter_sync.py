"""Counters shared by the workers of a node, as G-counters.

Rules
- Each worker counts by itself, at once, and sends its own totals to the others, which add them up.
- Every SYNC_INTERVAL seconds a worker sends the counters that changed. So a decision misses at most
  what other workers counted within SYNC_INTERVAL plus the latency.
- A worker that is new, or was unreachable, is sent everything, including the counts of workers that
  have ended. Those of one that is found to have ended soon after are sent then: it may have ended
  before it could tell them itself.
- At most MAX_PER_BATCH counters are sent to a worker at once, and none while its link lags. They
  wait, each once, so that the number of counters bounds what waits.
- A worker that cannot reach the others counts by itself. When they meet again each adds what it
  missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic

from msgnode.bus.periodic import every
from msgnode.core.faults import FAULTS
from msgnode.core.rates import Counter, Rates, Report

from .linked_worker import LinkedWorker
from .protocol import CounterReport
from .transport import LinkTransport

SYNC_INTERVAL = 0.05
MAX_PER_BATCH = 2000
_NUMBERS = 32  # bytes of a report beside its key


@dataclass(slots=True)
class _Pending:
    """The counters still to be sent to another worker, in its current stream.

    `relied_on` are the workers that were up when that began, and tell it their own counts.
    """

    stream: int
    began: float
    relied_on: set[str]
    counters: dict[str, dict[Counter, bool]] = field(default_factory=dict)


class CounterSync:
    """One instance per worker. `shared` are sets of counters by a name that all workers know."""

    def __init__(self, transport: LinkTransport, shared: Mapping[str, Rates]) -> None:
        self._transport = transport
        self._shared = shared
        self._unsaid: dict[str, _Pending] = {}
        for rates in shared.values():
            rates.share()
        transport.handlers[CounterReport] = self._heard

    async def run(self) -> None:
        """Run until cancelled."""
        await every(SYNC_INTERVAL, self.tell, "counters")

    def tell(self) -> None:
        """Send the changed counters to the others."""
        changed = {name: rates.take_changed() for name, rates in self._shared.items()}
        up = {epoch: other for epoch, other in self._transport.others.items() if other.is_up}
        for epoch in self._unsaid.keys() - up.keys():
            del self._unsaid[epoch]
        for epoch, other in up.items():
            unsaid = self._unsaid.get(epoch)
            if unsaid is None or unsaid.stream != other.out.stream:
                unsaid = self._unsaid[epoch] = _Pending(other.out.stream, monotonic(), {*up})
                for name, rates in self._shared.items():
                    unsaid.counters[name] = dict.fromkeys(rates.everything(), True)
            else:
                self._tell_for_ended(unsaid, up)
                for name, counters in changed.items():
                    waiting = unsaid.counters[name]
                    for counter in counters:
                        waiting.setdefault(counter, False)
                    if len(waiting) > MAX_PER_BATCH + 2 * len(self._shared[name]):
                        kept = self._shared[name].everything()  # what is forgotten is not told
                        unsaid.counters[name] = {each: waiting.get(each, False) for each in kept}
            for name, waiting in unsaid.counters.items():
                if waiting and other.out.has_room:
                    with FAULTS.kept_to("worker link"):
                        self._tell(other, name, waiting, up)

    def _tell_for_ended(self, unsaid: _Pending, up: Mapping[str, LinkedWorker]) -> None:
        """Have the counts of those sent that have ended since a worker came."""
        if not unsaid.relied_on or not (ended := unsaid.relied_on - up.keys()):
            return
        unsaid.relied_on -= ended
        if monotonic() - unsaid.began > 3 * self._transport.timeout:
            unsaid.relied_on.clear()
            return
        for name, rates in self._shared.items():
            of_them = (each for each in rates.everything() if ended & each.others.keys())
            unsaid.counters[name].update(dict.fromkeys(of_them, True))

    def _heard(self, other: LinkedWorker, message: CounterReport) -> None:
        """Merge the counts of another worker."""
        rates = self._shared.get(message.counters)
        worker = message.epoch or other.epoch
        if rates is not None and worker != self._transport.me.epoch:
            rates.hear(worker, message.reports)

    def _tell(
        self,
        other: LinkedWorker,
        name: str,
        waiting: dict[Counter, bool],
        up: Mapping[str, LinkedWorker],
    ) -> None:
        reports: dict[str, list[Report]] = {}
        for counter in list(islice(waiting, MAX_PER_BATCH)):
            is_new = waiting.pop(counter)
            if (own := counter.report()) is not None:
                reports.setdefault("", []).append(own)
            for worker in [each for each in counter.others if each not in up] if is_new else ():
                if (heard := counter.report_of(worker)) is not None:
                    reports.setdefault(worker, []).append(heard)
        for worker, each in reports.items():
            other.out.put(CounterReport(name, worker, each), sum(map(_size, each)))


def _size(report: Report) -> int:
    return _NUMBERS + sum(map(len, report[0]))
