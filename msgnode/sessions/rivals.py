"""Decides which of several gives way that come to several workers at the same moment.

Where nobody was, two may open a session of one runtime URL at two workers. Each looks for others
once more when it can be found itself, so at least one finds the other. If both do, the one with the
larger id gives way, and the other waits until it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from weakref import WeakSet

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import after_barrier, no_name_barrier
from msgnode.core import addresses
from msgnode.core.errors import Unavailable
from msgnode.core.pending import Pending

from .rules import State
from .session import LiveSession

GIVES_WAY_WITHIN = 1.0
"""Seconds in which one that gives way has ended at every worker."""
_EVERY = 0.02
_MAY_GIVE_WAY = State.OPENING, State.DETACHED, State.RESUMING

Findable = Callable[[str], asyncio.Future[None] | None]
"""A barrier: until all workers can find the sessions of a runtime URL."""


class Rivals:
    """One instance per worker. `shares` is SHARE_RUNTIME_URL."""

    def __init__(
        self,
        table: RoutingTable,
        ask_others: Callable[[str, Hashable], None],
        shares: bool,
        findable: Findable = no_name_barrier,
    ) -> None:
        self._table = table
        self._ask_others = ask_others
        self._shares = shares
        self._findable = findable
        self._undecided: WeakSet[LiveSession] = WeakSet()

    def begins(self, session: LiveSession) -> None:
        """Note a new session, which may have to give way, also if it is resumed before."""
        self._undecided.add(session)

    def when_decided(self, session: LiveSession, then: Callable[[bool], None]) -> None:
        """Call `then` once all workers can find a session, with whether it may stay."""
        until = asyncio.get_running_loop().time() + GIVES_WAY_WITHIN
        look = partial(self._look_again, session, then, until)
        after_barrier(partial(self._findable, session.runtime_url), look)

    def _look_again(self, session: LiveSession, then: Callable[[bool], None], until: float) -> None:
        """Find out who has come to another worker at the same moment and is in the way."""
        if session not in self._undecided:
            then(True)
            return
        try:
            self._ask_others(session.runtime_url, ("entered", session.id))
        except Pending as fact:
            fact.when_known(partial(self._look_again, session, then, until))
        except Unavailable:
            then(False)
        else:
            self._decide(session, then, until)

    def _decide(self, session: LiveSession, then: Callable[[bool], None], until: float) -> None:
        rivals = [each.id for each in self._rivals(session)]
        loop = asyncio.get_running_loop()
        if not rivals or session not in self._undecided or session.state not in _MAY_GIVE_WAY:
            self._undecided.discard(session)
            then(True)
        elif min(rivals) < session.id or loop.time() >= until:
            then(False)
        else:
            loop.call_later(_EVERY, self._decide, session, then, until)

    def _rivals(self, session: LiveSession) -> Iterator[Listener]:
        """The sessions of other workers beside which a new one could not have been opened."""
        mine, shares, runtimes = session.speaker, self._shares, self._table.runtimes
        for url in (session.runtime_url, addresses.runtime_twin(session.runtime_url)):
            beside = [each for each in runtimes.get(url, ()) if each.is_connected]
            for below in self._table.runtimes_below(url):
                beside += runtimes[below]
            for each in beside:
                if not each.is_here and not mine.may_follow(each.speaker, shares):
                    yield each
            for above in addresses.ancestors(url):
                for each in runtimes.get(above, ()):
                    # One that may follow this one might as well have come after it.
                    if not each.is_here and not each.speaker.may_follow(mine, shares):
                        yield each
