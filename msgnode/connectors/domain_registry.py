"""The connector to the domain registry, domain://registry.<domain>, embedded or remote.

Every message gets one answer, as in docs/reference/registry.md, section A5: 200 with or without
`value`, 404 "Not Found", 408 "Temporarily Unavailable" with the records, 504 when a remote registry
is out of reach. Who may change an entry is checked in two steps: here by what the node knows in
memory, that is who owns the addresses and the user id in the request (403); in the registry by who
owns the entry. An anonymous session may register under any user id, so whoever finds its entries
cannot rely on that. When the last session of a runtime has ended, its registrations become
`disconnected`, after a grace period if the runtime closed it itself.

Rules of the end of registrations
- Registrations of a runtime outlive its `close` by the grace period, because stubs of the field
  close and reopen at once. A session that ends otherwise has had its grace period, or was ended by
  somebody: then its registrations end at once.
- Only the registrant keeps an entry alive: an entry of a verified subject needs a session of that
  subject; if sessions of one runtime URL do not share (SHARE_RUNTIME_URL), an entry of a session
  needs that session. Another client's session with the runtime URL keeps nothing alive.
- Sessions may end by the thousand, so an end is only noted here; one job checks them in groups, one
  query per AT_ONCE runtimes, after the ends are committed. It asks the database, not the routing
  table: if sessions of one runtime end at two workers at the same time, the later check finds none.
- A worker that starts notes what was closed recently, so that a restart leaves nothing live. A
  failed group is retried; beyond ROOM those due first are left to their expiry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from time import monotonic
from typing import Any, NamedTuple, Protocol

from django.db import close_old_connections
from django.db.models import Q
from django.utils import timezone

from msgnode import models
from msgnode.bus.address_budget import AddressBudget
from msgnode.bus.ownership import Ownership
from msgnode.bus.ports import CLOSED_BY_RUNTIME, Body, Component, Listener
from msgnode.core import addresses
from msgnode.core.errors import Forbidden, NodeError
from msgnode.core.messages import Message
from registry.api import Claimant, session_mark, subject_mark

from .asking import asked_by
from .registry_requests import (
    Change,
    Find,
    Refresh,
    Register,
    Remove,
    Request,
    possible_urls,
    request_of,
)


class Registry(Protocol):
    """The registry behind the connector."""

    def carry_out(self, request: Request, by: Claimant | None) -> Awaitable[Body]:
        """Answer a request; `by` is the client for a change, None the node itself."""
        ...

    async def runtimes_gone(
        self, runtime_urls: Sequence[str], live: Mapping[str, frozenset[str]]
    ) -> None:
        """Disconnect the entries of runtimes that have no session any more.

        For those in `live`, which have some, disconnect the entries of owners whose marks are
        missing.
        """
        ...


class DomainRegistryConnector(Component):
    """Relays to a Registry; see the head of the file."""

    name = "domain-registry"
    kind = "connector"
    cancels = True

    def __init__(
        self,
        domain: str,
        registry: Registry,
        ownership: Ownership,
        written: Callable[[], Awaitable[Any]],
        grace: float,
        budget: AddressBudget,
    ) -> None:
        super().__init__((f"domain://registry.{domain}",))
        self._budget = budget
        self._registered: dict[str, set[str]] = {}  # session id -> URLs it has registered
        self._domain = domain
        self._registry = registry
        self._ownership = ownership
        self.ended = EndedRuntimes(registry.runtimes_gone, written, grace)

    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        """Execute a request; only the holder of an address may claim it."""
        fields = message.fields()
        request = request_of(message.type, fields, self._domain, caller.runtime_url)
        if isinstance(request, Find):
            return asked_by(caller, self._registry.carry_out(request, None))
        request = self._of_caller(request, caller)
        self._check(request, caller)
        if isinstance(request, Register):
            self._count(request.url, caller)
        by = self._claimant(request, caller)
        return asked_by(caller, self._registry.carry_out(request, by))

    def addresses_of(self, message: Message) -> list[str]:
        """The addresses that a request claims, whose holders must be known first."""
        with suppress(NodeError):  # the answer says so
            request = request_of(message.type, message.fields(), self._domain)
            if isinstance(request, Find):
                return []
            facts = request.body if isinstance(request, Register | Change) else {}
            named = possible_urls(request.url) + tuple(
                map(facts.get, ("runtime", "p2pHandler", "reporter"))
            )
            return [each for each in named if isinstance(each, str) and each]
        return []

    def _of_caller(
        self, request: Change | Register | Refresh | Remove, caller: Listener
    ) -> Change | Register | Refresh | Remove:
        """The request; what names an object by its id alone is for the caller's of that id."""
        urls = possible_urls(request.url)
        if urls == (request.url,):
            return request
        mine = (url for url in urls if self._ownership.holds(url, caller))
        return replace(request, url=next(mine, urls[0]))

    def _check(self, request: Change | Register | Refresh | Remove, caller: Listener) -> None:
        """Whether the addresses a request names are the caller's. Raises Forbidden."""
        if request.url:
            self._check_address(request.url, caller)
        if isinstance(request, Register) and request.user:
            self._check_user(request.user, caller)
        if isinstance(request, Register | Change):
            self._check_facts(request.body, caller)

    def _count(self, url: str, caller: Listener) -> None:
        """Count an entry as an address of the session that made it, until that ends.

        Its row stays when it is removed.

        Raises:
            TooMany: the session's source or subject has as many as it may have.
        """
        known = self._registered.get(caller.id, ())
        if url in known:
            return
        self._budget.check(caller, [url])
        self._budget.take(caller, [url])
        if caller.is_here:
            self._registered.setdefault(caller.id, set()).add(url)

    def _check_user(self, user: str, caller: Listener) -> None:
        """Whether a hyperty may be entered under this user id. Raises Forbidden."""
        identity = caller.speaker.identity
        if identity is not None and not identity.is_known_as(user):
            raise Forbidden(f"{user} is not this session's user, {identity.user_url}.")

    def _check_facts(self, facts: Mapping[str, Any], caller: Listener) -> None:
        runtime, handler = facts.get("runtime"), facts.get("p2pHandler")
        if isinstance(runtime, str) and not self._is_runtime_of(runtime.rstrip("/"), caller):
            raise Forbidden(f"The runtime {runtime} is not this session's.")
        if isinstance(handler, str) and not (
            self._is_runtime_of(handler, caller) or self._ownership.holds(handler, caller)
        ):
            raise Forbidden(f"The P2P handler {handler} is not this session's.")
        reporter = facts.get("reporter")
        if isinstance(reporter, str):
            self._check_address(reporter, caller)

    def _check_address(self, address: str, caller: Listener) -> None:
        self._ownership.check(address, caller, caller.speaker, self._ownership.shares_with)

    def _is_runtime_of(self, url: str, caller: Listener) -> bool:
        """Whether a runtime's address is the caller's, or is one that a foreign node speaks for."""
        if addresses.fault(url):
            return False
        if self._ownership.is_below_runtime(url, caller):
            return True
        owner = self._ownership.owner_of(url)
        home = addresses.parse(caller.runtime_url).home
        is_free = owner is None or owner is caller
        return is_free and home != self._domain and addresses.parse(url).home == home

    def _claimant(self, request: Request, caller: Listener) -> Claimant:
        identity = caller.speaker.identity
        url = caller.runtime_url
        return Claimant(
            session=caller.id,
            subject=subject_mark(identity.issuer, identity.subject) if identity else "",
            runtimes=tuple(filter(None, (url, addresses.runtime_twin(url)))),
            holds=self._ownership.holds(getattr(request, "url", ""), caller),
            shares=self._ownership.shares,
        )

    def session_closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd: if it was the runtime's last session, its registrations end."""
        self.session_handed_off(session.id)
        if session.runtime_url:
            self.ended.note(session.runtime_url, None if reason == CLOSED_BY_RUNTIME else 0.0)

    def session_handed_off(self, session_id: str) -> None:
        """A session counts here no longer."""
        if self._registered.pop(session_id, None) is not None:
            self._budget.forget(session_id)


AT_ONCE = 200
ROOM = 100_000
_GATHERS = 0.05
"""Seconds in which ends become a group."""
_TRIES_AGAIN = 2.0
_AWAY = timedelta(minutes=10)
"""How long ago a runtime may have closed to be processed after a restart."""

log = logging.getLogger(__name__)

End = Callable[[Sequence[str], Mapping[str, frozenset[str]]], Awaitable[None]]
"""Ends all entries of runtimes; and for others (runtime URL -> marks of the present owners) the
entries of absent owners.
"""


class EndedRuntimes:
    """Ends registrations of runtimes that have left.

    `end` ends registrations; `written()` is done when what was submitted to the database before is
    committed; `after` is the grace in seconds.
    """

    def __init__(self, end: End, written: Callable[[], Awaitable[Any]], after: float = 0.0) -> None:
        self._end = end
        self._written = written
        self._after = after
        self._due: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []  # a heap, one entry of each runtime
        self._noted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def note(self, runtime_url: str, after: float | None = None) -> None:
        """A session of this runtime has ended: look after the grace, or after so many seconds.

        Of two times the later one counts.
        """
        due = monotonic() + (self._after if after is None else after)
        known = self._due.get(runtime_url)
        self._due[runtime_url] = due if known is None else max(due, known)
        if known is None:
            heappush(self._queue, (due, runtime_url))
            if len(self._due) > ROOM:
                del self._due[heappop(self._queue)[1]]
        self._noted.set()

    async def run(self) -> None:
        """Check the due runtimes, until cancelled."""
        await self._note_earlier()
        while True:
            while self._queue and self._queue[0][0] <= monotonic():
                await asyncio.sleep(_GATHERS)
                await self._look_up(self._take())
            self._noted.clear()
            wait = self._queue[0][0] - monotonic() if self._queue else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._noted.wait()

    async def _note_earlier(self) -> None:
        try:
            for runtime_url, seconds in await asyncio.to_thread(_closed_lately, self._after):
                self.note(runtime_url, seconds)
        except Exception as error:
            log.warning("What was closed before the start is left to its expiry: %r", error)

    def _take(self) -> list[str]:
        now = monotonic()
        group: list[str] = []
        while self._queue and len(group) < AT_ONCE and self._queue[0][0] <= now:
            _, url = heappop(self._queue)
            if self._due[url] > now:  # noted again meanwhile
                heappush(self._queue, (self._due[url], url))
            else:
                del self._due[url]
                group.append(url)
        return group

    async def _look_up(self, group: list[str]) -> None:
        if not group:
            return
        try:
            await self._written()
            found = await asyncio.to_thread(_looked_up, group, self._after)
            if found.gone or found.present:
                await self._end(found.gone, found.present)
            for url, seconds in found.in_grace.items():
                self.note(url, seconds)
        except Exception as error:
            log.warning("Registrations of ended runtimes wait for another try: %r", error)
            for url in group:
                self.note(url, _TRIES_AGAIN)


class _Found(NamedTuple):
    """Runtimes without a session; marks of those with one or in grace; seconds left of a grace."""

    gone: list[str]
    present: dict[str, frozenset[str]]
    in_grace: dict[str, float]


def _looked_up(runtime_urls: Sequence[str], grace: float) -> _Found:
    """Look the runtimes up in the database, by either spelling of their URLs, at any worker."""
    spellings = {url: (url, addresses.runtime_twin(url)) for url in runtime_urls}
    asked = {each for both in spellings.values() for each in both if each}
    marks: dict[str, set[str]] = {}
    left: dict[str, float] = {}
    now = timezone.now()
    closed = models.Session.State.CLOSED
    lately = Q(close_reason=CLOSED_BY_RUNTIME, closed_at__gt=now - timedelta(seconds=grace))
    close_old_connections()
    try:
        sessions = models.Session.objects.filter(runtime_url__in=asked).order_by()
        rows = sessions.filter(~Q(state=closed) | lately)
        for row in rows.only("runtime_url", "issuer", "subject", "closed_at", "state"):
            known = marks.setdefault(row.runtime_url, set())
            known.add(session_mark(row.id.hex))
            if row.subject:
                known.add(subject_mark(row.issuer, row.subject))
            if row.state == closed:
                seconds = _seconds_left(row.closed_at, now, grace)
                left[row.runtime_url] = max(left.get(row.runtime_url, 0.0), seconds)
    finally:
        close_old_connections()
    found = _Found([], {}, {})
    for url, both in spellings.items():
        present = {mark for each in both for mark in marks.get(each, ())}
        if present:
            found.present[url] = frozenset(present)
        else:
            found.gone.append(url)
        if seconds := max(left.get(each, 0.0) for each in both):
            found.in_grace[url] = seconds
    return found


def _closed_lately(grace: float) -> list[tuple[str, float]]:
    """Runtimes that recently closed a session, each with the seconds until its check."""
    now = timezone.now()
    closed = models.Session.objects.filter(
        state=models.Session.State.CLOSED,
        closed_at__gt=now - timedelta(seconds=grace) - _AWAY,
    )
    close_old_connections()
    try:
        rows = closed.order_by("-closed_at").values_list("runtime_url", "closed_at")[:ROOM]
        return [(url, _seconds_left(at, now, grace)) for url, at in rows if url]
    finally:
        close_old_connections()


def _seconds_left(closed_at: datetime | None, now: datetime, grace: float) -> float:
    return max(0.0, grace - (now - (closed_at or now)).total_seconds())
