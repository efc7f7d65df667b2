"""The rows of push endpoints and of the invitations left there. Blocks: runs in threads.

Rules
- An endpoint belongs to one runtime of one user. Its id is random: whoever knows it may invite
  there.
- It expires DAYS after it was last requested; a user has at most MAX_PER_USER, the newest.
- An invitation is delivered once: its row stays, without its text, until it has expired.
- A worker that delivers one has LEASE for it, and marks it afterwards. If it ends before that, the
  next worker takes over: then it may come twice, and the receiver ignores a repeated name.
- Whoever knows endpoint and name may withdraw it: then it is not delivered; if it may have been
  already, the withdrawal is delivered in the same way.
- An endpoint has at most MAX_WAITING invitations that have not expired.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from msgnode import models
from msgnode.core.errors import BadMessage, NotFound, TooMany
from msgnode.identity.provider.cards import PUSH
from msgnode.storage import control
from msgnode.storage.deletion import delete_with_dependents

from .wire import LEFT, Invitation

DAYS = 30
MAX_PER_USER = 10
MAX_WAITING = 64
LEASE = timedelta(seconds=5)


class Waiting(NamedTuple):
    """An invitation to be delivered to a runtime, or its withdrawal.

    `subject` is its recipient; no other worker delivers it before `taken_until`.
    """

    pk: int
    subject: str
    address: str
    message: dict[str, Any]
    is_withdrawal: bool
    taken_until: datetime


def url_of(id_: str) -> str:
    """Where callers leave invitations."""
    return f"{settings.PUBLIC_URL}{PUSH}/{id_}"


@transaction.atomic
def open_for(
    subject: str, user_url: str, runtime_url: str, address: str, hyperty: str
) -> models.PushEndpoint:
    """The endpoint of a user's runtime: the one it has, renewed, or a new one."""
    now = timezone.now()
    said: dict[str, Any] = {"user_url": user_url, "address": address, "hyperty": hyperty}
    said |= {"renewed_at": now, "expires_at": now + timedelta(days=DAYS)}
    endpoint, is_new = models.PushEndpoint.objects.update_or_create(
        subject=subject,
        runtime_url=runtime_url,
        defaults=said,
        create_defaults={"id": secrets.token_urlsafe(24), **said},
    )
    if is_new:
        mine = models.PushEndpoint.objects.filter(subject=subject).order_by("-renewed_at")
        old = list(mine.values_list("pk", flat=True)[MAX_PER_USER:])
        delete_with_dependents(models.PushEndpoint.objects.filter(pk__in=old))
    return endpoint


def close(subject: str, runtime_url: str) -> int:
    """Delete the endpoint of a user's runtime, with its invitations; return their number."""
    mine = models.PushEndpoint.objects.filter(subject=subject, runtime_url=runtime_url)
    return delete_with_dependents(mine)


def leave(id_: str, invitation: Invitation, seconds: int) -> None:
    """Store an invitation for a while, and have the workers look for its runtime.

    Raises:
        NotFound: the endpoint does not exist any more.
        BadMessage: it is for somebody else.
        TooMany: too many have not expired.
    """
    now = timezone.now()
    endpoint = models.PushEndpoint.objects.filter(pk=id_, expires_at__gt=now).first()
    if endpoint is None or not _is_active(endpoint.subject):
        raise _no_such_endpoint()
    if invitation.user_url != endpoint.user_url:
        raise BadMessage("`to` is not whose endpoint this is.")
    known = models.Invitation.objects.filter(endpoint=endpoint)
    known.filter(expires_at__lte=now).delete()
    if known.filter(name=invitation.name).exists():
        return
    if known.count() >= MAX_WAITING:
        raise TooMany("Too many invitations have not expired.")
    expires = datetime.fromtimestamp(invitation.expires, UTC)
    try:
        with transaction.atomic():
            models.Invitation.objects.create(
                endpoint=endpoint,
                name=invitation.name,
                message=msgspec.json.encode(invitation.message).decode(),
                keep_until=min(expires, now + timedelta(seconds=seconds)),
                expires_at=expires,
            )
            control.post(LEFT, runtime_url=endpoint.runtime_url)
    except IntegrityError:  # it came twice at once, or the endpoint has gone meanwhile
        if not known.filter(name=invitation.name).exists():
            raise _no_such_endpoint() from None


def waiting_runtimes() -> set[str]:
    """The runtimes for which something waits."""
    found = _waiting().values_list("endpoint__runtime_url", flat=True)
    return set(found)


def withdraw(id_: str, name: str) -> None:
    """Withdraw an invitation. Idempotent.

    Raises:
        NotFound: there is no such invitation, or it has expired.
    """
    it = models.Invitation.objects.filter(endpoint=id_, name=name, expires_at__gt=timezone.now())
    row = it.select_related("endpoint").first()
    if row is None:
        raise NotFound("There is no such invitation, or it has expired.")
    unheard = it.filter(taken_until=None, withdrawn=False).exclude(message="")
    if unheard.update(message="", withdrawn=True):
        return
    told = {"to": row.endpoint.user_url, "value": {"invitation": name}}
    message = msgspec.json.encode(told).decode()
    with transaction.atomic():
        once = it.filter(withdrawn=False)
        if once.update(
            message=message, withdrawn=True, taken_until=None, keep_until=row.expires_at
        ):
            control.post(LEFT, runtime_url=row.endpoint.runtime_url)


def take(runtime_url: str, subjects: set[str]) -> tuple[list[Waiting], bool]:
    """What waits for a runtime of these users, for this worker to hand over.

    Returns:
        That; and whether another worker is handing over something.
    """
    rows = _waiting().filter(endpoint__runtime_url=runtime_url, endpoint__subject__in=subjects)
    here, is_elsewhere = [], False
    for row in rows.select_related("endpoint").order_by("pk"):
        now = timezone.now()
        until, of = now + LEASE, row.endpoint
        it = models.Invitation.objects.filter(pk=row.pk, taken_until=row.taken_until)
        is_free = row.taken_until is None or row.taken_until <= now
        if is_free and it.filter(message=row.message).update(taken_until=until):
            message = msgspec.json.decode(row.message)
            here.append(Waiting(row.pk, of.subject, of.address, message, row.withdrawn, until))
        else:
            is_elsewhere = True
    return here, is_elsewhere


def handed_over(those: list[Waiting]) -> None:
    """Mark invitations as delivered; the withdrawal of one is still to be delivered."""
    for each in those:
        it = models.Invitation.objects.filter(pk=each.pk, taken_until=each.taken_until)
        it.update(message="", taken_until=None)


def _no_such_endpoint() -> NotFound:
    return NotFound("There is no such endpoint.")


def _waiting() -> QuerySet[models.Invitation]:
    return models.Invitation.objects.filter(keep_until__gt=timezone.now()).exclude(message="")


def _is_active(subject: str) -> bool:
    users = get_user_model().objects
    return subject.isdecimal() and users.filter(pk=int(subject), is_active=True).exists()
