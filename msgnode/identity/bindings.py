"""Bindings: which runtime a token belongs to, and which key its subject has; the first one wins.

bind(wanted…)         bind these; returns those in force: `wanted` itself, or an earlier one
look(name, asker)     the binding of a name, if any

Rules
- A binding lasts while its runtime has a session at any worker, at most until the token expires.
- A single worker decides in its memory. With several the database does (`shared`), so that of
  simultaneous requests exactly one wins. Its answer is cached until a session of the runtime ends,
  or moves to another worker, so a known binding costs a look-up. The move itself ends no binding.
- For an unknown binding the caller waits for the database, at most `patience` seconds (Pending); if
  the database does not answer, the token is not accepted (Unavailable).

The rows are shared by all workers: the unique name decides who was first. A row belongs to its
runtime while that has a session in the database, at whichever worker; after that, or after its
expiry, it goes to the next who asks. Every change is of one row, in the writer's transaction; if
two workers want the same row, the second waits for the first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from time import monotonic, time
from typing import NamedTuple, Protocol

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from msgnode import models
from msgnode.bus.writing import Writer, result_of
from msgnode.core.digest import digest
from msgnode.core.errors import NodeError, TooMany, Unavailable

from .pending import waiting_for

log = logging.getLogger(__name__)

MAX_KEPT = 20_000
"""Bindings in memory that the database has, too."""
MAX_PER_RUNTIME = 1_000
"""Valid tokens: a runtime renews its own once an hour, a peer brings those of its users."""
_TOLD = 2.0
"""Seconds for which an answer of the database is kept for those who asked."""


class Binding(NamedTuple):
    """`name` is a digest: of a token, or of a runtime and a subject.

    `value` is what it is bound to: the runtime's URL, or the hash of a key. `ends` is in seconds
    since the epoch.
    """

    name: str
    value: str
    runtime_url: str
    ends: float


Found = Sequence[Binding | None]


def key_name(runtime_url: str, issuer: str, subject: str) -> str:
    """What the key of a runtime's subject is bound under."""
    return digest("\n".join((runtime_url, issuer, subject)))


class Shared(Protocol):
    """The bindings that the workers share."""

    def settle(self, wanted: Sequence[Binding]) -> Awaitable[Found]:
        """Bind what is free; return for each the one in force, None if the runtime has too many."""
        ...

    def look(self, name: str) -> Awaitable[Found]:
        """The binding in force, as a list of one."""
        ...


class _Answer(NamedTuple):
    """The answer of the database, or why there is none."""

    found: Found | NodeError
    until: float


class Bindings:
    """One instance per worker.

    `is_live(runtime URL)` says whether a runtime has a session at any worker; `capacity` is how
    many bindings are kept in memory, `limit` how many a runtime may have.
    """

    def __init__(
        self,
        is_live: Callable[[str], bool],
        capacity: int = MAX_KEPT,
        limit: int = MAX_PER_RUNTIME,
        shared: Shared | None = None,
        patience: float = 3.0,
        now: Callable[[], float] = time,
    ) -> None:
        self._is_live = is_live
        self._capacity = capacity
        self._limit = limit
        self._shared = shared
        self._patience = patience
        self._now = now
        self._known: OrderedDict[str, Binding] = OrderedDict()
        self._of: dict[str, set[str]] = {}  # runtime URL -> names
        self._answers: dict[tuple[str, ...], _Answer] = {}
        self._asking: dict[tuple[str, ...], asyncio.Future[None]] = {}

    def bind(self, *wanted: Binding) -> list[Binding]:
        """See the head of the file. Raises Pending, Unavailable, TooMany."""
        at_hand = [self._at_hand(each) for each in wanted]
        held = [each for each in at_hand if each is not None]
        if len(held) == len(wanted):
            return held
        if self._shared is None:
            return [each or self._take(want) for each, want in zip(at_hand, wanted, strict=True)]
        names = (part for each in wanted for part in (each.name, each.value))
        found = self._answer(("bind", *names), partial(self._shared.settle, wanted))
        settled = [each for each in found if each is not None]
        if len(settled) < len(wanted):
            raise TooMany("This runtime has used too many identities that are still valid.")
        return settled

    def look(self, name: str, asker: str) -> Binding | None:
        """See the head of the file. Raises Pending, Unavailable."""
        known = self._known.get(name)
        if known is not None and self._is_in_force(known):
            return known
        if self._shared is None:
            return None
        return self._answer(("look", name, asker), partial(self._shared.look, name))[0]

    def runtime_ended(self, runtime_url: str) -> None:
        """Note that a session of a runtime has ended, at any worker."""
        if self._shared is None and self._is_live(runtime_url):
            return
        self.runtime_went(runtime_url)

    def runtime_went(self, runtime_url: str) -> None:
        """A session of this runtime is with another worker, where it may end unheard of here."""
        for name in self._of.pop(runtime_url, ()):
            del self._known[name]

    def __len__(self) -> int:
        return len(self._known)

    # --- memory -----------------------------------------------------------------------------------

    def _at_hand(self, wanted: Binding) -> Binding | None:
        """The binding known to be in force, for as long as requested."""
        known = self._known.get(wanted.name)
        if known is None:
            return None
        if known.value == wanted.value:
            return known if known.ends >= wanted.ends else None
        return known if self._is_in_force(known) else None

    def _is_in_force(self, known: Binding) -> bool:
        return known.ends > self._now() and self._is_live(known.runtime_url)

    def _take(self, wanted: Binding) -> Binding:
        """Bind in memory only."""
        names = self._of.get(wanted.runtime_url, set())
        if len(names) >= self._limit and wanted.name not in names:
            for name in [name for name in names if self._known[name].ends <= self._now()]:
                self._drop(name)
            if len(names) >= self._limit:
                raise TooMany("This runtime has used too many identities that are still valid.")
        return self._keep(wanted)

    def _keep(self, binding: Binding) -> Binding:
        self._drop(binding.name)
        self._known[binding.name] = binding
        self._of.setdefault(binding.runtime_url, set()).add(binding.name)
        if len(self._known) > self._capacity:
            self._drop(next(iter(self._known)))
        return binding

    def _drop(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            names = self._of[known.runtime_url]
            names.discard(name)
            if not names:
                del self._of[known.runtime_url]

    # --- the database -----------------------------------------------------------------------------

    def _answer(self, key: tuple[str, ...], ask: Callable[[], Awaitable[Found]]) -> Found:
        """The answer of the database to this query, once it has come."""
        answer = self._answers.get(key)
        if answer is not None and answer.until > monotonic():
            if isinstance(answer.found, NodeError):
                raise type(answer.found)(answer.found.description)
            return answer.found
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(self._ask(key, ask))
        raise waiting_for("Whom a token is bound to", asking)

    async def _ask(self, key: tuple[str, ...], ask: Callable[[], Awaitable[Found]]) -> None:
        found: Found | NodeError
        try:
            found = await asyncio.wait_for(ask(), self._patience)
        except Exception as fault:
            log.warning("It could not be told whom a token is bound to: %r", fault)
            found = Unavailable(
                "The node cannot check at the moment whether another runtime uses the token."
            )
        else:
            live = [each for each in found if each is not None and self._is_live(each.runtime_url)]
            for each in live:
                self._keep(each)
            if len(live) == len(found):
                found = []  # the caller finds it in memory
        del self._asking[key]
        if found:
            self._answers[key] = _Answer(found, monotonic() + _TOLD)
            asyncio.get_running_loop().call_later(_TOLD, self._answers.pop, key, None)


_TRIES = 3
_LAST = 4_102_444_800.0
"""Expiry is capped at 2099: a token may claim any `exp`."""


class BindingStore:
    """The Shared of bindings. `limit` is how many a runtime may have."""

    def __init__(self, writer: Writer, limit: int) -> None:
        self._writer = writer
        self._limit = limit

    async def settle(self, wanted: Sequence[Binding]) -> Found:
        """Bind what is free; return for each the binding in force after the commit."""
        return await result_of(self._writer, lambda: [self._settled(each) for each in wanted])

    async def look(self, name: str) -> Found:
        """The binding of a name, according to the database."""
        return [await result_of(self._writer, lambda: self._found(name))]

    # --- in the writer's thread -------------------------------------------------------------------

    @staticmethod
    def _found(name: str) -> Binding | None:
        row = models.IdentityBinding.objects.filter(name=name).first()
        return _binding(row) if row is not None and _is_in_force(row) else None

    def _settled(self, wanted: Binding) -> Binding | None:
        rows = models.IdentityBinding.objects
        for _ in range(_TRIES):
            row = rows.select_for_update().filter(name=wanted.name).first()
            if row is not None and row.value == wanted.value:
                if row.ends_at < _ends_at(wanted.ends):
                    rows.filter(name=wanted.name).update(ends_at=_ends_at(wanted.ends))
                return wanted
            if row is not None and _is_in_force(row):
                return _binding(row)
            own = rows.filter(runtime_url=wanted.runtime_url, ends_at__gt=timezone.now())
            if own.count() >= self._limit:
                return None
            fields = {
                "value": wanted.value,
                "runtime_url": wanted.runtime_url,
                "ends_at": _ends_at(wanted.ends),
            }
            if row is not None:
                rows.filter(name=wanted.name).update(**fields)
                return wanted
            new = models.IdentityBinding(name=wanted.name, **fields)
            rows.bulk_create([new], ignore_conflicts=True)  # reading again tells who was first
        raise Unavailable("Too many requests for this token at once: try again.")


def purge(now: datetime, at_once: int) -> int:
    """Delete expired rows, so many per transaction; return their number."""
    deleted = 0
    while ids := list(_over(now).values_list("pk", flat=True)[:at_once]):
        with transaction.atomic():  # checked again, because a runtime may have returned
            number = _over(now).filter(pk__in=ids).delete()[0]
        if not number:
            break
        deleted += number
    return deleted


def _over(now: datetime) -> QuerySet[models.IdentityBinding]:
    open_ = _open_sessions().filter(runtime_url=OuterRef("runtime_url"))
    return models.IdentityBinding.objects.filter(Q(ends_at__lt=now) | ~Exists(open_))


def _is_in_force(row: models.IdentityBinding) -> bool:
    if row.ends_at <= timezone.now():
        return False
    return _open_sessions().filter(runtime_url=row.runtime_url).exists()


def _open_sessions() -> QuerySet[models.Session]:
    return models.Session.objects.exclude(state=models.Session.State.CLOSED).order_by()


def _binding(row: models.IdentityBinding) -> Binding:
    return Binding(row.name, row.value, row.runtime_url, row.ends_at.timestamp())


def _ends_at(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(seconds, _LAST), UTC)
