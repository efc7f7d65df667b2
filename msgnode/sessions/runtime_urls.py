"""Decides whether a client may open a new session under a runtime URL, and which one makes room.

Rules
- Everything below a runtime's URL belongs to the runtime, and its messages must not reach somebody
  who came there in its absence. So a runtime URL cannot be opened below that of an existing
  runtime, nor above that of one that the newcomer may not follow; below one whose last owner is a
  verified subject, only by that subject.
- If the URL is in use, only the same subject (or whom SHARE_RUNTIME_URL allows) may open another
  session. A socket that is in the way is first checked for liveness (liveness.py).
- At MAX_SESSIONS_PER_RUNTIME a session that has lost its socket makes room, see selection.py.
- Of two that come to two workers at the same moment, where nobody was, one gives way. Each looks
  for others once more when it can be found itself, so at least one finds the other. If both do, the
  one with the larger id gives way, and the other waits until it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from weakref import WeakSet

from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import after_barrier
from msgnode.core import addresses
from msgnode.core.errors import BadMessage, Forbidden, TooMany, Unavailable
from msgnode.core.pending import Pending

from . import rules, selection
from .connection import Connection
from .liveness import LivenessChecks
from .locator import SessionLocator
from .manager import SessionManager
from .rules import State
from .session import LiveSession
from .session_factory import PEER, SessionSettings

GIVES_WAY_WITHIN = 1.0
"""Seconds in which one that gives way has ended at every worker."""
_EVERY = 0.02
_MAY_GIVE_WAY = State.OPENING, State.DETACHED, State.RESUMING

Findable = Callable[[str], asyncio.Future[None] | None]
"""A barrier: until all workers can find the sessions of a runtime URL."""


class RuntimeUrls:
    """One instance per worker. `end` ends a session at any worker."""

    def __init__(
        self,
        settings: SessionSettings,
        sessions: SessionManager,
        table: RoutingTable,
        liveness: LivenessChecks,
        last_owners: LastOwnerCache,
        end: Callable[[Listener], None],
        locator: SessionLocator,
        findable: Findable,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._table = table
        self._liveness = liveness
        self._last_owners = last_owners
        self._end = end
        self._locator = locator
        self._findable = findable
        self._undecided: WeakSet[LiveSession] = WeakSet()

    def check_form(self, runtime_url: str) -> None:
        """Raise BadMessage for an invalid runtime URL."""
        if why := rules.runtime_url_fault(runtime_url):
            raise BadMessage(f"The runtime URL {why}.")

    def check_peer(self, runtime_url: str, caller: Connection) -> None:
        """Raise Forbidden for the URL of a peer's session, which only the node itself opens."""
        if caller.handshake != PEER and runtime_url in self._table.peers.values():
            raise Forbidden(f"{runtime_url} is the node of another domain.")

    def check(self, runtime_url: str, caller: Connection) -> None:
        """Check that the caller may open a new session under the URL, and make room for it.

        Raises:
            NodeError: it may not.
            Pending: sockets that are in the way are being checked.
        """
        self._check_place(runtime_url, caller)
        runtimes = self._table.runtimes
        siblings = runtimes.get(runtime_url, ())
        twins = runtimes.get(addresses.runtime_twin(runtime_url), ())
        self._check_use(runtime_url, (*siblings, *twins), caller)
        if len(siblings) >= self._settings.max_per_runtime:
            self._make_room(runtime_url, siblings, caller)
        if len(self._sessions.sessions) >= self._settings.max_sessions:
            raise Unavailable("The node has reached its limit of sessions.")

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
            self._locator.ask_others(session.runtime_url, ("entered", session.id))
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
        mine, shares, runtimes = session.speaker, self._settings.shares, self._table.runtimes
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

    def _check_place(self, runtime_url: str, caller: Connection) -> None:
        for url in (runtime_url, addresses.runtime_twin(runtime_url)):
            above = tuple(addresses.ancestors(url))
            if used := next(filter(self._table.runtimes.__contains__, above), ""):
                raise Forbidden(f"{runtime_url} lies below the runtime {used}.")
            for below in self._table.runtimes_below(url):
                if not self._may_follow_all(self._table.runtimes[below], caller):
                    raise Forbidden(f"{runtime_url} lies above {below}, which is another's.")
            if above and not self._last_owners.allow(above[0], caller.speaker):
                raise Forbidden(f"{runtime_url} lies below what belongs to another subject.")

    def _may_follow_all(self, sessions: Sequence[Listener], caller: Connection) -> bool:
        shares = self._settings.shares
        return all(caller.speaker.may_follow(each.speaker, shares) for each in sessions)

    def _check_use(
        self, runtime_url: str, sessions: Sequence[Listener], caller: Connection
    ) -> None:
        """Check that no session of somebody else is in the way."""
        shares = self._settings.shares
        checked = caller.checked
        in_the_way = [
            each
            for each in sessions
            if (each.is_connected or (each.speaker.identity is not None and not shares))
            and not caller.speaker.may_follow(each.speaker, shares)
        ]
        if not in_the_way:
            return
        may_be_gone = [
            each
            for each in in_the_way
            if each.is_connected and (each.speaker.identity is None or shares)
        ]
        unasked = [each for each in may_be_gone if each.id not in checked]
        if len(may_be_gone) == len(in_the_way):
            if unasked:
                raise self._liveness.before(unasked, caller)
            if not all(checked[each.id] for each in may_be_gone):
                checked.clear()
                raise Unavailable(
                    f"{runtime_url} was in use until now, and may still be: try again."
                )
        checked.clear()
        raise Forbidden(f"{runtime_url} is in use by another connection.")

    def _make_room(
        self, runtime_url: str, siblings: Sequence[Listener], caller: Connection
    ) -> None:
        oldest = selection.to_end(siblings, caller.speaker)
        if oldest is not None:
            self._end(oldest)
            return
        unasked = [each for each in siblings if each.is_connected and each.id not in caller.checked]
        if unasked:
            raise self._liveness.before(unasked, caller)
        caller.checked.clear()
        raise TooMany(f"{runtime_url} has {len(siblings)} sessions already, all in use.")
