"""Guests: sessions without an identity that may speak because a user of this domain invited them.

docs/reference/runtime.md, section 8.5. If an identity is required (ADMISSION=identified), a session
without one may speak to exactly what it was invited to, until that ends:

    create -> the inviter's hyperty, body.value.invitation = <name>    accepted, by this session
    any message -> that hyperty; the resource, and what is below it
    subscribe, unsubscribe -> .../sm, naming only parts of the resource

Anything else from a guest is refused with 403; from others, with 401 as usual.

Rules
- An invitation is accepted in the step that finds out who sends (identity/authenticator.py). The
  checks of `from`, policies and route come later, and may still refuse the message.
- A session whose identity this node verifies is no guest: it speaks as it is, never accepts, and
  the end of an invitation does not send it away.
- The worker of a session reads once what it has accepted, and again every EVERY seconds, so that
  deleted rows no longer count. A message waits for that (Pending) for at most SECONDS; then it is
  answered 503.
- A session may try MAX_TRIES names. A name that gave it nothing may be tried again after EVERY
  seconds, because the inviter may have reopened the invitation.
- When a right ends, the guest's subscriptions by it end too, and its runtime is told of a gap.

The rows of what was sent. Rules
- Only a digest is kept of its name, which caller and callee alone know.
- Whoever accepts it first, at its hyperty and before it expires, has it; from then on it belongs to
  that runtime, in its newest session, until `ends_at`.
- Its user may withdraw it until somebody has accepted it; exactly one of the two succeeds.
- Its user may end it at any time: whoever has accepted it is no longer a guest.
- Its user may reopen an accepted one until it expires, if whoever accepted it does nothing: that
  session is no longer a guest, and whoever accepts it next has it. The node itself cannot know
  whether a conversation came about.
- A user has at most MAX_PER_USER valid ones.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from msgnode.bus.periodic import every
from msgnode.bus.ports import Listener
from msgnode.core import addresses
from msgnode.core.digest import digest
from msgnode.core.errors import (
    BadMessage,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    TooMany,
    Unavailable,
)
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.identity.pending import waiting_for
from msgnode.models import SentInvitation
from msgnode.storage.database_threads import DatabaseThreads
from msgnode.subscriptions import rules

from . import wire

log = logging.getLogger(__name__)

EVERY = 5.0
SECONDS = 3.0
MAX_TRIES = 10
_OVERLAP = 600.0
"""Seconds for which ended rights are checked again, as their session may have moved meanwhile."""
_TOLD = 2.0
"""Seconds for which the database is not asked again after it did not answer."""
_Key = tuple[str, str]


class _Guest:
    """What a session may speak to, and which names it has tried."""

    def __init__(self) -> None:
        self.rights: list[Right] = []
        self.tried: dict[str, float] = {}  # when each may be tried again

    def may_try(self, name: str, now: float) -> bool:
        """Whether the database is to be asked about a name."""
        if name not in self.tried:
            return True
        return now >= self.tried[name] and not any(each.ends > now for each in self.rights)


class Subscriptions(Protocol):
    """The subscription manager."""

    addresses: tuple[str, ...]

    def of(self, session: Listener, /) -> Iterable[str]:
        """The subscriptions of a session."""
        ...

    def end(self, address: str, session: Listener, /) -> None:
        """End one of them."""
        ...


class Guests:
    """One instance per worker; the authenticator's Guests (identity.ports.Guests).

    Args:
        threads: runs database calls.
        sessions: the sessions of this worker, by id.
        subscriptions: the subscription manager.
        missed: tells a session of a gap.
        max_addresses: most addresses in a request to it.
        accepted: called with a session that has accepted an invitation.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        threads: DatabaseThreads,
        sessions: dict[str, Any],
        subscriptions: Subscriptions,
        missed: Callable[[str], None],
        max_addresses: int,
        accepted: Callable[[Listener], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._threads = threads
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._missed = missed
        self._max_addresses = max_addresses
        self._accepted = accepted
        self._clock = clock
        self._guests: dict[str, _Guest] = {}  # by session id; also of who asked and is none
        self._asking: dict[_Key, asyncio.Future[None]] = {}
        self._unknown: dict[_Key, str] = {}
        self.steps: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many sessions are guests; may be asked from another thread."""
        now = self._clock()
        return sum(_last(each) > now for each in tuple(self._guests.values()))

    def may_say(self, message: Message, session: Listener) -> bool:
        """Whether a session without an identity may send this, because it was invited.

        Raises:
            Pending: that is being looked up.
            Forbidden: it is a guest, or has tried to be one, and was not invited to this.
            Unavailable: the database does not answer.
        """
        name = _presented(message)
        guest, now = self._guests.get(session.id), self._clock()
        if guest is None or (name and guest.may_try(name, now)):
            if guest is not None and name not in guest.tried and len(guest.tried) >= MAX_TRIES:
                self.steps["refused"] += 1
                raise Forbidden("This session has tried too many invitations.")
            raise self._look_up(session, name, message.recipients[0])
        rights = [each for each in guest.rights if each.ends > now]
        if rights and all(self._is_covered(to, message, rights) for to in message.recipients):
            return True
        if rights or guest.rights or guest.tried:
            self.steps["refused"] += 1
        if rights:
            named = ", ".join(each.resource or each.hyperty for each in rights)
            raise Forbidden(f"This session may speak to what it was invited to alone: {named}.")
        if guest.rights or guest.tried:
            raise Forbidden(
                "The invitation does not exist, has ended, or belongs to another runtime."
            )
        return False

    def forget(self, session_id: str) -> None:
        """The session has ended, or is with another worker."""
        self._guests.pop(session_id, None)

    def closed(self, session: Listener, reason: str) -> None:
        """A SessionEnd."""
        self.forget(session.id)

    async def watch(self) -> None:
        """End expired rights. Runs until cancelled; without the database it tries again."""
        says = "It could not be read which invitations have ended"
        await every(EVERY, self.look, "guests", says)

    async def look(self) -> None:
        """Reload the rights of the guests here, and end subscriptions no longer allowed."""
        before = {id_: guest.rights for id_, guest in self._guests.items() if guest.rights}
        over: list[Right] = [each for rights in before.values() for each in rights]

        def read() -> list[Right]:
            over.extend(ended_rights(_OVERLAP))
            return list(rights_of(before))

        now: dict[str, list[Right]] = {}
        for right in await self._threads.run(read):
            now.setdefault(right.session, []).append(right)
        for id_, rights in before.items():
            guest = self._guests.get(id_)
            if guest is not None and guest.rights is rights:  # or it accepted another meanwhile
                guest.rights = now.get(id_, [])[:MAX_RIGHTS] or _ended(rights)
                self.steps["ended"] += _has_ended(rights) < _has_ended(guest.rights)
        for right in over:
            if right not in now.get(right.session, ()):
                self._end_below(right)

    # --- steps ------------------------------------------------------------------------------------

    def _is_covered(self, to: str, message: Message, rights: list[Right]) -> bool:
        if to != self._subscriptions.addresses[0]:
            return any(each.covers(to) for each in rights)
        if message.type not in ("subscribe", "unsubscribe"):
            return False
        asked = rules.wanted(message.fields(), self._max_addresses)
        named = (*asked.exact, *asked.optional)
        return all(any(each.covers(address) for each in rights) for address in named)

    def _look_up(self, session: Listener, name: str, to: str) -> Pending:
        """Look up, and accept if a name is given. Raises Unavailable."""
        key = (session.id, name)
        if why := self._unknown.get(key):
            raise Unavailable(why)
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.ensure_future(self._accept_and_read(key, session, to))
            self._asking[key] = asking
        return waiting_for("Whether the session was invited", asking)

    async def _accept_and_read(self, key: _Key, session: Listener, to: str) -> None:
        id_, name = key

        def find() -> tuple[bool, list[Right]]:
            accepted = bool(name) and accept(name, to, session.runtime_url, id_)
            return accepted, list(rights_of((id_,)))

        try:
            accepted, rights = await asyncio.wait_for(self._threads.run(find), SECONDS)
        except Exception as error:
            if not isinstance(error, TooMany):
                log.warning("It could not be told whether a session was invited: %r", error)
            self._tell(key, "Whether this session was invited cannot be told just now.")
        else:
            if id_ not in self._sessions:
                self._tell(key, "The session has ended.")
                return
            guest = self._guests.setdefault(id_, _Guest())
            guest.rights = rights[:MAX_RIGHTS] or _ended(guest.rights)
            if name:
                guest.tried[name] = self._clock() + EVERY
            if accepted:
                self.steps["admitted"] += 1
                self._accepted(session)
        finally:
            del self._asking[key]

    def _tell(self, key: _Key, why: str) -> None:
        """Refuse what asks this again soon."""
        self._unknown[key] = why
        asyncio.get_running_loop().call_later(_TOLD, self._unknown.pop, key, None)

    def _end_below(self, right: Right) -> None:
        session = self._sessions.get(right.session)
        if session is None or session.speaker.identity is not None:
            return
        guest = self._guests.get(right.session)
        now, rights = self._clock(), guest.rights if guest is not None else []
        others = [each for each in rights if each.ends > now]
        ended = [
            address
            for address in self._subscriptions.of(session)
            if right.covers(address) and not any(each.covers(address) for each in others)
        ]
        for address in ended:
            self._subscriptions.end(address, session)
        if ended:
            self._missed(session.id)


def _last(guest: _Guest) -> float:
    """When the last of its rights ends."""
    return max((each.ends for each in guest.rights), default=0.0)


def _has_ended(rights: list[Right]) -> bool:
    return not any(each.ends for each in rights)


def _ended(rights: list[Right]) -> list[Right]:
    """Ended rights, so that their session is told why it is refused."""
    return [each._replace(ends=0.0) for each in rights[:1]]


def _presented(message: Message) -> str:
    """The name of the invitation that a message accepts, "" if it accepts none."""
    if message.is_response or len(message.recipients) != 1:
        return ""
    if b'"invitation"' not in bytes(message.body):
        return ""
    with suppress(BadMessage):
        value = message.fields().get("value")
        name = value.get("invitation") if isinstance(value, dict) else None
        if isinstance(name, str) and len(name) <= wire.MAX_NAME:
            return name
    return ""


# --- the rows of what was sent: these functions block ---------------------------------------------
MAX_PER_USER = 1_000
MAX_RIGHTS = 16
"""Of one session; the latest that it accepted count."""
_BATCH = 500


class Right(NamedTuple):
    """What a session may speak to that was invited; `ends` is in seconds since the epoch."""

    session: str
    hyperty: str
    resource: str
    ends: float

    def covers(self, address: str) -> bool:
        """Whether it is the hyperty, the resource, or a part of the resource."""
        is_part = bool(self.resource) and addresses.is_under(address, self.resource)
        return is_part or address == self.hyperty


def note_sent(
    name: str, subject: str, hyperty: str, resource: str, expires: int, stay: int
) -> None:
    """Note an invitation before it is sent. Raises TooMany."""
    now = timezone.now()
    if SentInvitation.objects.filter(subject=subject, ends_at__gt=now).count() >= MAX_PER_USER:
        raise TooMany(f"More than {MAX_PER_USER} invitations of this user are still valid.")
    until = datetime.fromtimestamp(expires, UTC)
    SentInvitation.objects.create(
        digest=digest(name),
        subject=subject,
        hyperty=hyperty,
        resource=resource,
        stay=stay,
        expires_at=until,
        ends_at=until,
    )


def note_location(name: str, location: str) -> None:
    """Remember by a digest where it can be withdrawn."""
    it = SentInvitation.objects.filter(digest=digest(name))
    it.update(location_digest=digest(location))


def drop(name: str) -> bool:
    """Forget an invitation that the endpoint has not confirmed; False if it was accepted."""
    it = SentInvitation.objects.filter(digest=digest(name))
    return bool(it.filter(runtime_url="").delete()[0]) or not it.exists()


def withdraw(name: str, subject: str, location: str) -> None:
    """Withdraw a user's invitation. Idempotent.

    Raises:
        NotFound: the user has not sent it, or long ago.
        BadMessage: `location` is given, and not what the endpoint returned.
        Conflict: it was accepted.
    """
    now = timezone.now()
    it = SentInvitation.objects.filter(digest=digest(name), subject=subject)
    row = it.first()
    if row is None:
        raise _none_such()
    if location and digest(location) != row.location_digest:
        raise BadMessage("params.location is not where this invitation was left.")
    if it.filter(runtime_url="", expires_at__gt=now).update(expires_at=now, ends_at=now):
        return
    if it.exclude(runtime_url="").exists():
        raise Conflict("The invitation was accepted before it was withdrawn.")


def end(name: str, subject: str) -> None:
    """End a user's invitation: it cannot be accepted, and whoever has is no longer a guest.

    Raises:
        NotFound: the user has not sent it, or long ago.
    """
    now = timezone.now()
    it = SentInvitation.objects.filter(digest=digest(name), subject=subject)
    if not it.filter(ends_at__gt=now).update(expires_at=now, ends_at=now) and not it.exists():
        raise _none_such()


def reopen(name: str, subject: str) -> datetime:
    """An invitation of a user can be accepted again, whoever had it; until when.

    What it was until now stays as a row that has ended, so that each worker ends what it gave.

    Raises:
        NotFound: the user has sent no such invitation, or long ago.
        Gone: it can be accepted no more.
    """
    now = timezone.now()
    with transaction.atomic():
        it = SentInvitation.objects.select_for_update().filter(digest=digest(name), subject=subject)
        row = it.first()
        if row is None:
            raise _none_such()
        if row.expires_at <= now:
            raise Gone("The invitation has expired, or was ended: send another one.")
        if row.runtime_url:
            it.update(digest=digest(secrets.token_urlsafe(24)), expires_at=now, ends_at=now)
            row.runtime_url = row.session = ""
            row.ends_at = row.expires_at
            row.save(force_insert=True)
    return row.expires_at


def accept(name: str, hyperty: str, runtime_url: str, session: str) -> bool:
    """Whether a session has an invitation from now on that it accepts at this hyperty."""
    now = timezone.now()
    it = SentInvitation.objects.filter(digest=digest(name), hyperty=hyperty)
    row = it.filter(ends_at__gt=now).first()
    if row is None:
        return False
    ends = max(row.ends_at, now + timedelta(seconds=row.stay))
    if row.expires_at > now:
        free = it.filter(runtime_url="", expires_at=row.expires_at)  # nobody has ended it meanwhile
        if free.update(runtime_url=runtime_url, session=session, ends_at=ends):
            return True
    return bool(it.filter(runtime_url=runtime_url, ends_at__gt=now).update(session=session))


def rights_of(sessions: Iterable[str]) -> Iterator[Right]:
    """What these may speak to now, the latest first."""
    ids = list(sessions)
    good = SentInvitation.objects.filter(ends_at__gt=timezone.now())
    for start in range(0, len(ids), _BATCH):
        yield from _rights(good.filter(session__in=ids[start : start + _BATCH]))


def ended_rights(seconds: float) -> Iterator[Right]:
    """The invitations that have ended in the last so many seconds."""
    now = timezone.now()
    gone = SentInvitation.objects.filter(ends_at__lte=now, ends_at__gt=now - timedelta(0, seconds))
    yield from _rights(gone.exclude(session=""))


def _none_such() -> NotFound:
    return NotFound("This user has not sent this invitation, or it ended long ago.")


def _rights(rows: QuerySet[SentInvitation]) -> Iterator[Right]:
    found = rows.order_by("-ends_at").values_list("session", "hyperty", "resource", "ends_at")
    for session, hyperty, resource, ends_at in found:
        yield Right(session, hyperty, resource, ends_at.timestamp())
