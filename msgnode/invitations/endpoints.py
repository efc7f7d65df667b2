"""The rows of push endpoints and of the invitations left there; runs in threads with a database.

Rules
- An endpoint belongs to one runtime of one user. Its id is random: whoever has it may invite there.
- It is good for DAYS from the last time it was asked for; a user has MAX_PER_USER, the newest.
- An invitation comes once: its row stays, without its text, until it has expired.
- At most MAX_WAITING invitations of an endpoint have not expired.
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

from .wire import Invitation

DAYS = 30
MAX_PER_USER = 10
MAX_WAITING = 64
LEFT = "invitation.left"
"""Kind of the control message after which workers look for the runtime. Payload: runtime_url."""


class Waiting(NamedTuple):
    """An invitation that a runtime is to hear of; `subject` is whom it is for."""

    pk: int
    subject: str
    address: str
    message: dict[str, Any]


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
        models.PushEndpoint.objects.filter(pk__in=old).delete()
    return endpoint


def close(subject: str, runtime_url: str) -> int:
    """End the endpoint of a user's runtime, with what waits there; how many there were."""
    mine = models.PushEndpoint.objects.filter(subject=subject, runtime_url=runtime_url)
    number = mine.count()
    mine.delete()
    return number


def leave(id_: str, invitation: Invitation, seconds: int) -> None:
    """Keep an invitation for a while, and have the workers look for its runtime.

    Raises:
        NotFound: there is no such endpoint, or it is nobody's any more.
        BadMessage: it is for somebody else.
        TooMany: too many have not expired.
    """
    now = timezone.now()
    endpoint = models.PushEndpoint.objects.filter(pk=id_, expires_at__gt=now).first()
    if endpoint is None or not _is_active(endpoint.subject):
        raise NotFound("There is no such endpoint.")
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
    except IntegrityError:
        return  # it came twice at once


def waiting_runtimes() -> set[str]:
    """The runtimes for which something waits."""
    found = _waiting().values_list("endpoint__runtime_url", flat=True)
    return set(found)


def take(runtime_url: str, subjects: set[str]) -> list[Waiting]:
    """What waits for a runtime of these users; nobody else is given it."""
    rows = _waiting().filter(endpoint__runtime_url=runtime_url, endpoint__subject__in=subjects)
    taken = []
    for row in rows.select_related("endpoint").order_by("pk"):
        if not models.Invitation.objects.filter(pk=row.pk).exclude(message="").update(message=""):
            continue  # another worker has it
        of = row.endpoint
        taken.append(Waiting(row.pk, of.subject, of.address, msgspec.json.decode(row.message)))
    return taken


def _waiting() -> QuerySet[models.Invitation]:
    return models.Invitation.objects.filter(keep_until__gt=timezone.now()).exclude(message="")


def _is_active(subject: str) -> bool:
    users = get_user_model().objects
    return subject.isdecimal() and users.filter(pk=int(subject), is_active=True).exists()
