"""Visitors: runtimes of other domains that have come here themselves; how many, and for how long.

A visitor is a session whose runtime URL is of another domain than the node's; the session through
which the node of another domain is reached is none. What a domain is worth that somebody says of
himself is for ADMISSION to find out: here it is a name that others must not suffer from.

Rules
- A worker has so many visitors of one source address, of one domain, and of all; who comes beyond
  that is answered 429, with the name of the limit. What a runtime has left here makes no room, but
  is gone on with as ever; a session that changes its worker is taken in any case.
- A visit is over when it has lasted `stay` seconds; or when for `idle` seconds nothing was sent and
  nothing was heard, by somebody who listens to nothing. 0: it never is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from msgnode.core import addresses
from msgnode.core.errors import Forbidden, TooMany
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Speaker

from . import budgets
from .rules import CloseCode
from .session import LiveSession

EVERY = 1.0
"""Seconds between two looks at how long visits last."""
_AT_ONCE = 500
_PAUSE = 0.002

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VisitorLimits:
    """Of each worker; `idle` and `stay` are in seconds, 0 for no end."""

    total: int
    per_domain: int
    per_source: int
    idle: float
    stay: float


class Visit:
    """One visitor: its session, and when something passed last."""

    __slots__ = ("active_at", "domain", "frames", "session", "source")

    def __init__(self, session: LiveSession, domain: str, now: float) -> None:
        self.session = session
        self.domain = domain
        self.source = budgets.source(session.speaker.remote_address)
        self.frames = frames_of(session)
        self.active_at = now


class Visitors:
    """One instance per worker.

    Args:
        limits: of the worker.
        home: the node's domain.
        refuses: whether runtimes of this URL's domain may not come at all.
        hears: what a session listens to.
        end: ends a session, with a close code and a reason.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        limits: VisitorLimits,
        home: str,
        refuses: Callable[[str], bool],
        hears: Callable[[LiveSession], Collection[str]],
        end: Callable[[LiveSession, int, str], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.refused: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self._limits = limits
        self._home = home
        self._refuses = refuses
        self._hears = hears
        self._end = end
        self._clock = clock
        self._visits: dict[str, Visit] = {}  # by session id
        self._domains: Counter[str] = Counter()
        self._sources: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._visits)

    def __iter__(self) -> Iterator[Visit]:
        return iter(list(self._visits.values()))

    @property
    def domains(self) -> int:
        """How many domains there are visitors of."""
        return len(self._domains)

    def check(self, runtime_url: str, speaker: Speaker, is_new: bool) -> None:
        """Whether somebody may have a session of this runtime, as a visitor.

        Args:
            runtime_url: of the runtime.
            speaker: who is behind the connection.
            is_new: whether it is one session more.

        Raises:
            Forbidden: runtimes of its domain may not come here.
            TooMany: there are as many visitors as there may be.
        """
        domain = addresses.foreign_domain(runtime_url, self._home)
        if not domain or speaker.peer == domain:
            return
        if self._refuses(runtime_url):
            self.refused["domain"] += 1
            raise Forbidden(f"Runtimes of {domain} may not come to this node.")
        if not is_new:
            return
        limits, source = self._limits, budgets.source(speaker.remote_address)
        if self._sources[source] >= limits.per_source:
            self._refuse("VISITORS_PER_SOURCE", "of your address", limits.per_source)
        if self._domains[domain] >= limits.per_domain:
            self._refuse("VISITORS_PER_DOMAIN", f"of {domain}", limits.per_domain)
        if len(self._visits) >= limits.total:
            self._refuse("VISITORS", "of other domains", limits.total)

    # --- what others tell it ----------------------------------------------------------------------

    def entered(self, session: LiveSession) -> None:
        """A session is here now, or somebody else is behind it, such as the node of a peer."""
        if not session.speaker.is_visitor:
            self.left(session.id)
        elif session.id not in self._visits:
            domain = addresses.foreign_domain(session.runtime_url, self._home)
            visit = self._visits[session.id] = Visit(session, domain, self._clock())
            self._domains[domain] += 1
            self._sources[visit.source] += 1

    def left(self, session_id: str) -> None:
        """A session is here no longer."""
        visit = self._visits.pop(session_id, None)
        if visit is not None:
            _count_down(self._domains, visit.domain)
            _count_down(self._sources, visit.source)

    def closed(self, session: Any, reason: str) -> None:
        """A SessionEnd."""
        self.left(session.id)

    # --- how long it lasts ------------------------------------------------------------------------

    async def watch(self) -> None:
        """End visits that are over, a few at a time. Runs until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            visits = list(self)
            for start in range(0, len(visits), _AT_ONCE):
                for visit in visits[start : start + _AT_ONCE]:
                    with FAULTS.kept_to("session"):
                        self.look_at(visit)
                await asyncio.sleep(_PAUSE)

    def look_at(self, visit: Visit) -> None:
        """End a visit that is over."""
        session, now, limits = visit.session, self._clock(), self._limits
        if self._visits.get(session.id) is not visit:
            return
        if not session.speaker.is_visitor:
            self.left(session.id)
            return
        if limits.stay and time.time() - session.opened_at >= limits.stay:
            self._over(session, "stay", f"a visit lasts {limits.stay:.0f} s")
            return
        frames = frames_of(session)
        if frames != visit.frames or not session.is_connected or self._hears(session):
            visit.frames, visit.active_at = frames, now
        elif limits.idle and now - visit.active_at >= limits.idle:
            self._over(session, "idle", f"nothing passed for {limits.idle:.0f} s")

    def _over(self, session: LiveSession, reason: str, text: str) -> None:
        self.ended[reason] += 1
        self._end(session, CloseCode.NORMAL, text)

    def _refuse(self, setting: str, whose: str, limit: int) -> None:
        self.refused[setting.lower()] += 1
        raise TooMany(f"This node has its {limit} visitors {whose} ({setting}): try again later.")


def frames_of(session: LiveSession) -> tuple[int, int]:
    """Frames that the session has sent on the socket it has now, and that it was given."""
    socket = session.socket
    return socket.flow.frames if socket is not None else 0, session.outbox.frames


def _count_down(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if counter[name] <= 0:
        del counter[name]
