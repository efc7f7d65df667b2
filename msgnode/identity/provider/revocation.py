"""Ends tokens and logins, and notifies the workers in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session as BrowserSession
from django.db import transaction
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_grant_model,
    get_id_token_model,
    get_refresh_token_model,
    revoke_access_token,
)

from msgnode.core.digest import digest
from msgnode.identity.revocation_list import revoke

from .token_claims import subject_of


@transaction.atomic
def revoke_token(text: str) -> bool:
    """End an access or refresh token and what belongs to it; whether it was one of ours."""
    said = told_of(text)
    access, refresh = _rows(text)
    if access is not None:
        revoke_access_token(access)
    elif refresh is not None:
        refresh.revoke()
    if said:
        revoke(**said)
    return access is not None or refresh is not None


def told_of(text: str) -> dict[str, Any]:
    """What the workers are told when this token ends; nothing if it binds nothing."""
    access, refresh = _rows(text)
    if access is None and refresh is not None:
        access = refresh.access_token
    return {"token": access.token_checksum, "close": False} if access is not None else {}


def _rows(text: str) -> tuple[Any, Any]:
    checksum = digest(text)
    return tuple(
        model.objects.filter(token_checksum=checksum).first()
        for model in (get_access_token_model(), get_refresh_token_model())
    )


@transaction.atomic
def end_logins(user: Any, *, close: bool) -> None:
    """End all tokens and browser sessions of a user. `close` ends what runtimes have open, too."""
    now = timezone.now()
    get_refresh_token_model().objects.filter(user=user, revoked=None).update(revoked=now)
    for model in (get_access_token_model(), get_id_token_model(), get_grant_model()):
        model.objects.filter(user=user).delete()
    revoke(issuer=settings.PROVIDER["ISSUER"], subject=subject_of(user), close=close)


def browser_sessions(
    *users: Any, most: int | None = None
) -> Iterator[tuple[BrowserSession, int, dict[str, Any]]]:
    """The log-ins of browsers, the newest first: row, key of the account, content.

    Decodes every session: for rare use.

    Args:
        users: whose; everybody's if none is named.
        most: how many sessions are read.
    """
    wanted = {str(user.pk) for user in users}
    rows = BrowserSession.objects.filter(expire_date__gt=timezone.now()).order_by("-expire_date")
    for row in rows[:most].iterator():
        content = row.get_decoded()
        pk = content.get("_auth_user_id")
        if pk and (not wanted or pk in wanted):
            yield row, int(pk), content


def end_browser_sessions(*users: Any) -> int:
    """Log users' browsers out; how many."""
    if not users:
        return 0
    keys = [row.pk for row, _, _ in browser_sessions(*users)]
    BrowserSession.objects.filter(pk__in=keys).delete()
    return len(keys)
