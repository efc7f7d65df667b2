"""The secrets that the node shares with its TURN servers: encrypted rows, rotated without a gap.

The newest secret signs, once the servers know it. An older one stays valid until every credential
signed with it has expired. coturn reads them from a set in its Redis (`turn/realm/<realm>/secret`)
for each request, so a change applies at once and no server is restarted. All functions block.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from msgnode.identity.encryption import decrypt, encrypt

from . import credentials
from .models import TurnSecret

LEAD = timedelta(seconds=15)
"""How long a new secret is known to the servers before it signs."""


def signing() -> str:
    """The secret that signs now; made if there is none that can be read."""
    rows = list(TurnSecret.objects.all()[:2])
    if len(rows) == 2 and rows[0].made_at + LEAD > timezone.now():
        rows.reverse()
    secret = decrypt(rows[0].sealed) if rows else ""
    return secret or rotate()


def rotate() -> str:
    """A new secret, which signs once the servers have it (LEAD), at once if it is the first."""
    secret = credentials.new_secret()
    TurnSecret.objects.create(sealed=encrypt(secret))
    return secret


def current(credential_seconds: int) -> list[str]:
    """All valid secrets, the newest first; expired ones are deleted."""
    with transaction.atomic():
        signing()
        rows = list(TurnSecret.objects.all()[:20])
        kept = []
        for newer, row in zip([None, *rows], rows, strict=False):
            grace = timedelta(seconds=credential_seconds + 60)
            if newer is not None and newer.made_at + grace < timezone.now():
                row.delete()
            else:
                kept.append(decrypt(row.sealed))
    return [each for each in kept if each]
