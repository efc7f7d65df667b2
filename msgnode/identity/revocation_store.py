"""Stores revocations: identities that are no longer valid, whatever their tokens say.

revoke()  writes a row and a control message; for the console, the provider, a shell
load()    reads the revocations, for a worker

A revoked subject's tokens that were issued up to that second (`iat` is no finer) are refused for as
long as any could be valid (MAX_LIFE); a token issued later is a new login. A revoked token is
refused for good.
"""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from msgnode import models
from msgnode.storage import control

from .ports import REVOKED
from .revocation_list import Revocation, Revocations

MAX_LIFE = timedelta(days=30)


def revoke(
    *, issuer: str = "", subject: str = "", token: str = "", close: bool = True, by: str = ""
) -> models.Revocation:
    """Revoke a subject's identities, or one token (its `digest`).

    Blocks; part of the caller's transaction. `close` ends the sessions they bound, else those
    become anonymous.
    """
    if not token and not (issuer and subject):
        raise ValueError("A revocation names a token, or an issuer and a subject.")
    at = timezone.now()
    row, _ = models.Revocation.objects.update_or_create(
        issuer="" if token else issuer,
        subject="" if token else subject,
        token=token,
        defaults={"revoked_at": at, "ends_at": at + MAX_LIFE, "revoked_by": by},
    )
    named = {"issuer": issuer, "subject": subject, "token": token}
    control.post(REVOKED, **named, close=close, at=at.timestamp())
    return row


def load() -> Revocations:
    """The present revocations. Blocks."""
    rows = models.Revocation.objects.filter(ends_at__gt=timezone.now())
    return Revocations(
        Revocation(row.issuer, row.subject, row.token, row.revoked_at.timestamp())
        for row in rows.iterator(chunk_size=2000)
    )
