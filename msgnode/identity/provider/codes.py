"""What was issued from an authorization code, to be ended when the code is shown again.

RFC 6749, 4.1.2.

The family of the refresh tokens that follow from a code is named by the code's hash, so that who
was given what is known for as long as the tokens are, at every worker, and no code need be kept.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from django.db import transaction
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from msgnode.identity.revocation_store import revoke

_NAMES = uuid.UUID("1f0e7c52-5f0e-4f3c-9a3b-0f7c2f1f6b7e")


def family_of(code: str) -> uuid.UUID:
    """The family of the refresh tokens that follow from a code."""
    return uuid.uuid5(_NAMES, hashlib.sha256(code.encode()).hexdigest())


@transaction.atomic
def end_issued(code: str, client: Any) -> int:
    """End all tokens that a client was issued from a code, and tell the workers; how many."""
    refresh_tokens = get_refresh_token_model().objects.filter(
        token_family=family_of(code), application=client
    )
    access_tokens = get_access_token_model().objects.filter(refresh_token__in=refresh_tokens)
    said = list(access_tokens.values_list("token_checksum", flat=True))
    access_tokens.delete()
    refresh_tokens.filter(revoked=None).update(revoked=timezone.now())
    for checksum in said:
        revoke(token=checksum, close=False)
    return len(said)
