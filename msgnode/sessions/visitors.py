"""Limits visitors, that is sessions of runtimes of other domains: how many, and for how long.

A visitor is a session whose runtime URL is of a foreign domain, except for the session through
which that domain's node is reached. Whether a claimed domain is true is for ADMISSION to decide;
here it is only a name to count by.

Rules
- A worker limits its visitors per source address, per domain and in total; one too many is answered
  429, with the name of the limit. Resuming a session is always possible; so is moving one from
  another worker.
- A visit ends when it has lasted `stay` seconds, or when a visitor that listens to nothing has sent
  and received nothing for `idle` seconds. 0: never.
"""

from __future__ import annotations

import asyncio
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

"""Seconds between two checks of the visits."""
_AT_ONCE = 500
_PAUSE = 0.002


@dataclass(frozen=True, slots=True)
class VisitorLimits:
    """The limits of each worker; `idle` and `stay` are in seconds, 0 for no limit."""

    total: int
    per_domain: int
    per_source: int
    idle: float
    stay: float


class Visit:
    """One visitor: its session, the time of its last frame, and when its stay began."""

    __slots__ = ("active_at", "began_at", "domain", "frames", "session", "source")

    def __init__(self, session: LiveSession, domain: str, now: float) -> None:
        self.session = session
        self.domain = domain
        self.source = budgets.source(session.speaker.remote_address)
        self.frames = frames_of(session)
        self.active_at = now
        # Another worker, or this one before a restart, may have opened the session.
        self.began_at = now - max(0.0, time.time() - session.opened_at)


class Visitors:
    """One instance per worker.

    Args:
        limits: the worker's limits.
        home: the node's domain.
        refuses: whether runtimes of this URL's domain are not admitted at all.
        hears: what a session listens to.
        end: ends a session, with a close code and a reason.
        clock: a monotonic clock, in seconds.
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
        """The number of domains that have visitors here."""
        return len(self._domains)

    def check(self, runtime_url: str, speaker: Speaker, is_new: bool) -> None:
        """Check that a speaker may have a session of this runtime, if it is a visitor's.

        Args:
            runtime_url: the runtime's URL.
            speaker: the speaker of the connection.
            is_new: whether it would be an additional session.

        Raises:
            Forbidden: runtimes of its domain are not admitted.
            TooMany: a limit of visitors is reached.
        """
        domain = addresses.foreign_domain(runtime_url, self._home)
        if not domain or speaker.peer == domain:
            return
        if self._refuses(runtime_url):
            self.refused["domain"] += 1
            raise Forbidden(f"Runtimes of {domain} may not open sessions at this node.")
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
        """Note a session that is new here or whose speaker has changed, such as to a peer node."""
        if not session.speaker.is_visitor:
            self.left(session.id)
        elif session.id not in self._visits:
            domain = addresses.foreign_domain(session.runtime_url, self._home)
            visit = self._visits[session.id] = Visit(session, domain, self._clock())
            self._domains[domain] += 1
            self._sources[visit.source] += 1

    def left(self, session_id: str) -> None:
        """Forget a session that is no longer here."""
        visit = self._visits.pop(session_id, None)
        if visit is not None:
            _count_down(self._domains, visit.domain)
            _count_down(self._sources, visit.source)

    def closed(self, session: Any, reason: str) -> None:
        """Handle the end of a session; a SessionEnd."""
        self.left(session.id)

    # --- how long it lasts ------------------------------------------------------------------------

    async def look(self) -> None:
        """End visits at their limits, a few at a time. Call this every second."""
        visits = list(self)
        for start in range(0, len(visits), _AT_ONCE):
            for visit in visits[start : start + _AT_ONCE]:
                with FAULTS.kept_to("session"):
                    self.look_at(visit)
            await asyncio.sleep(_PAUSE)

    def look_at(self, visit: Visit) -> None:
        """End a visit that has reached a limit."""
        session, now, limits = visit.session, self._clock(), self._limits
        if self._visits.get(session.id) is not visit:
            return
        if not session.speaker.is_visitor:
            self.left(session.id)
            return
        if limits.stay and now - visit.began_at >= limits.stay:
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
    """The number of frames a session has sent on its current socket, and has received."""
    socket = session.socket
    return socket.flow.frames if socket is not None else 0, session.outbox.frames


def _count_down(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if counter[name] <= 0:
        del counter[name]
