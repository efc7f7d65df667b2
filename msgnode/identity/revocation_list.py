"""Revocations: identities that are no longer valid, whatever their tokens say.

A worker keeps them in memory and checks them at every verification.

revoke()  writes a row and a control message; for the console, the provider, a shell
load()    reads the revocations, for a worker

A revoked subject's tokens that were issued up to that second (`iat` is no finer) are refused for as
long as any could be valid (MAX_LIFE); a token issued later is a new login. A revoked token is
refused for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from time import time
from typing import Any, NamedTuple

from django.utils import timezone

from msgnode import models
from msgnode.storage import control

from .ports import REVOKED


class Revocation(NamedTuple):
    """Revokes a subject, or (with `token`, a digest) one token.

    `at` is in seconds, epoch; `closes` says whether it closes sessions, if that is known.
    """

    issuer: str = ""
    subject: str = ""
    token: str = ""
    at: float = 0.0
    closes: bool = False


class Revocations:
    """A snapshot; look-ups are dictionary look-ups."""

    def __init__(self, revoked: Iterable[Revocation] = ()) -> None:
        self._subjects: dict[tuple[str, str], float] = {}
        self._tokens: set[str] = set()
        self._closing: set[str | tuple[str, str]] = set()
        for each in revoked:
            self.add(each)

    def add(self, revoked: Revocation) -> None:
        """Add a revocation."""
        if revoked.closes:
            self._closing.add(revoked.token or (revoked.issuer, revoked.subject))
        if revoked.token:
            self._tokens.add(revoked.token)
        else:
            key = revoked.issuer, revoked.subject
            self._subjects[key] = max(revoked.at, self._subjects.get(key, 0.0))

    def covers(self, issuer: str, subject: str, issued: float, token: str) -> bool:
        """Whether a token of this subject, issued at this moment (0: unknown), is revoked."""
        if token in self._tokens:
            return True
        at = self._subjects.get((issuer, subject))
        return at is not None and issued <= at

    def closes(self, issuer: str, subject: str, token: str) -> bool:
        """Whether what covers it also ends sessions, as far as that was said to this worker."""
        return token in self._closing or (issuer, subject) in self._closing

    def __len__(self) -> int:
        return len(self._subjects) + len(self._tokens)


def from_payload(payload: dict[str, Any]) -> Revocation:
    """Read a revocation from the payload of a control message."""
    named = {name: str(payload.get(name, "")) for name in ("issuer", "subject", "token")}
    at, closes = payload.get("at") or time(), bool(payload.get("close", True))
    return Revocation(**named, at=at, closes=closes)


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
