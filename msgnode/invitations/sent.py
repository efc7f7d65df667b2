"""The rows of invitations that users of this domain have sent. Blocks: runs in threads.

Rules
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

import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from msgnode.core import addresses
from msgnode.core.digest import digest
from msgnode.core.errors import BadMessage, Conflict, Gone, NotFound, TooMany
from msgnode.models import SentInvitation

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


def keep(name: str, subject: str, hyperty: str, resource: str, expires: int, stay: int) -> None:
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


def of(sessions: Iterable[str]) -> Iterator[Right]:
    """What these may speak to now, the latest first."""
    ids = list(sessions)
    good = SentInvitation.objects.filter(ends_at__gt=timezone.now())
    for start in range(0, len(ids), _BATCH):
        yield from _rights(good.filter(session__in=ids[start : start + _BATCH]))


def ended(seconds: float) -> Iterator[Right]:
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
