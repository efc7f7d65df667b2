"""Revocations: identities that are good no longer, whatever their tokens say.

revoke()     leaves a row and a control message; for the console, the provider, a shell
Revocations  a worker's copy, asked at every verification

A revoked subject's tokens issued up to that second (`iat` is no finer) are refused for as long as
any could live (MAX_LIFE); a token issued later is a new login. A revoked token is refused for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from time import time
from typing import Any, NamedTuple

from django.utils import timezone

from msgnode import models

from .ports import REVOKED

MAX_LIFE = timedelta(days=30)


class Revocation(NamedTuple):
    """Of a subject, or (with `token`, a digest) of one token. `at` is in seconds, epoch."""

    issuer: str = ""
    subject: str = ""
    token: str = ""
    at: float = 0.0


class Revocations:
    """A snapshot; look-ups are dictionary look-ups."""

    def __init__(self, revoked: Iterable[Revocation] = ()) -> None:
        self._subjects: dict[tuple[str, str], float] = {}
        self._tokens: set[str] = set()
        for each in revoked:
            self.add(each)

    def add(self, revoked: Revocation) -> None:
        """This one counts from now on."""
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

    def __len__(self) -> int:
        return len(self._subjects) + len(self._tokens)


def revoke(
    *, issuer: str = "", subject: str = "", token: str = "", close: bool = True, by: str = ""
) -> None:
    """Revoke a subject's identities, or one token (its `ports.digest`). Blocks; takes part in the
    caller's transaction. `close` ends the sessions they bound, else those go on as anonymous."""
    if not token and not (issuer and subject):
        raise ValueError("A revocation names a token, or an issuer and a subject.")
    at = timezone.now()
    models.Revocation.objects.update_or_create(
        issuer="" if token else issuer,
        subject="" if token else subject,
        token=token,
        defaults={"revoked_at": at, "ends_at": at + MAX_LIFE, "revoked_by": by},
    )
    named = {"issuer": issuer, "subject": subject, "token": token}
    payload = {**named, "close": close, "at": at.timestamp()}
    models.ControlMessage.objects.create(kind=REVOKED, payload=payload)


def load() -> Revocations:
    """What is revoked at present. Blocks."""
    rows = models.Revocation.objects.filter(ends_at__gt=timezone.now())
    return Revocations(
        Revocation(row.issuer, row.subject, row.token, row.revoked_at.timestamp())
        for row in rows.iterator(chunk_size=2000)
    )


def from_payload(payload: dict[str, Any]) -> Revocation:
    """What a control message says."""
    named = {name: str(payload.get(name, "")) for name in ("issuer", "subject", "token")}
    return Revocation(**named, at=payload.get("at") or time())
