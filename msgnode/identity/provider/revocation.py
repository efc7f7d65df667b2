"""Ends tokens and logins, and notifies the workers in the same transaction."""

from __future__ import annotations

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
from msgnode.identity.revocation_store import revoke

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


def end_browser_sessions(user: Any) -> int:
    """Log a user's browsers out; how many. Reads all sessions: for rare use."""
    ended = 0
    for session in BrowserSession.objects.filter(expire_date__gt=timezone.now()).iterator():
        if session.get_decoded().get("_auth_user_id") == str(user.pk):
            session.delete()
            ended += 1
    return ended
