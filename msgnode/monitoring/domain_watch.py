"""The traffic to and from other domains, second by second, only while somebody watches.

It covers peers that this worker serves, and its visitors, by domain. Rates are averages since the
last query, over at most MOST seconds; queries sooner than SOONEST get the same result. Visitors can
claim any number of domains: only the TOLD with most sessions are reported, and how many others
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from msgnode.sessions.visitors import Visitors, frames_of

if TYPE_CHECKING:
    from msgnode.federation.peer import Link

SOONEST = 0.5
MOST = 5.0
TOLD = 24


class PeerFigures(msgspec.Struct, array_like=True):
    """A peer as the worker knows it that serves it: messages a second to it and from it."""

    domain: str
    state: str
    sent: float = 0.0
    received: float = 0.0
    waiting: int = 0
    round_trip: float = 0.0


class VisitorFigures(msgspec.Struct, array_like=True):
    """Visitors of a domain at a worker: messages a second to them and from them."""

    domain: str
    sessions: int
    sent: float = 0.0
    received: float = 0.0


class DomainFigures(msgspec.Struct, array_like=True):
    """The report of a worker. `others` are the domains not in `visitors`, with their sessions."""

    worker: str
    peers: list[PeerFigures]
    visitors: list[VisitorFigures]
    others: tuple[int, int]


class DomainWatch:
    """One a worker."""

    def __init__(
        self,
        worker: str,
        visitors: Visitors,
        links: Callable[[], Iterable[Link]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._worker = worker
        self._visitors = visitors
        self._links = links
        self._clock = clock
        self._at = float("-inf")
        self._peers: dict[str, tuple[int, int]] = {}
        self._sessions: dict[str, tuple[int, int]] = {}
        self._told = DomainFigures(worker, [], [], (0, 0))

    def ask(self) -> DomainFigures:
        """What passes now."""
        now = self._clock()
        passed = now - self._at
        if passed < SOONEST:
            return self._told
        seconds = passed if passed <= MOST else 0.0  # 0: nobody has looked, there is no rate yet
        self._at = now
        visitors, others = self._of_visitors(seconds)
        self._told = DomainFigures(self._worker, self._of_peers(seconds), visitors, others)
        return self._told

    def _of_peers(self, seconds: float) -> list[PeerFigures]:
        before, told = self._peers, []
        self._peers = {}
        for link in list(self._links()):
            counters, domain = link.exchange.counters, link.peer.domain
            counted = self._peers[domain] = counters.sent, counters.received
            sent, received = _rates(before.get(domain), counted, seconds)
            waiting = len(link.exchange.queue)
            told.append(
                PeerFigures(domain, link.state, sent, received, waiting, counters.round_trip)
            )
        return told

    def _of_visitors(self, seconds: float) -> tuple[list[VisitorFigures], tuple[int, int]]:
        before, domains = self._sessions, dict[str, VisitorFigures]()
        self._sessions = {}
        for visit in self._visitors:
            read, given = frames_of(visit.session)
            known = before.get(visit.session.id, (0, 0))
            counted = self._sessions[visit.session.id] = given, read
            if read < known[1]:  # it has another socket, which counts from nothing
                known = known[0], 0
            sent, received = _rates(known, counted, seconds)
            of = domains.get(visit.domain)
            if of is None:
                of = domains[visit.domain] = VisitorFigures(visit.domain, 0)
            of.sessions += 1
            of.sent += sent
            of.received += received
        listed = sorted(domains.values(), key=lambda each: -each.sessions)
        rest = listed[TOLD:]
        return listed[:TOLD], (len(rest), sum(each.sessions for each in rest))


def _rates(
    before: tuple[int, int] | None, now: tuple[int, int], seconds: float
) -> tuple[float, float]:
    if before is None or not seconds:
        return 0.0, 0.0
    return max(0, now[0] - before[0]) / seconds, max(0, now[1] - before[1]) / seconds
