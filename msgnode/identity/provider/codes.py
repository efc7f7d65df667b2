"""What belongs to an authorization code: its nonce, and what was issued from it.

All of that is revoked when something of it is used twice: the code itself (RFC 6749, 4.1.2), or a
refresh token that another one has followed. A nonce may be a public key, for which the toolkit's
column has no room on PostgreSQL; such a one is stored among the claims that a client asked for,
which this provider does not read.

The family of the refresh tokens that follow from a code is named by the code's hash, so that what
was issued to whom is known while the tokens exist, at every worker, and no code need be stored. The
ids of identity tokens begin with their family's, by which they are found.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

from django.db import transaction
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_id_token_model,
    get_refresh_token_model,
)

from msgnode.core.digest import digest
from msgnode.identity.claims import id_token_name
from msgnode.identity.revocation_list import revoke

MAX_NONCE = 4096
"""Longest nonce in characters; a key's text of an RSA-2048 public key has about 1,100."""
_MAX_NONCE_COLUMN = 255
_NONCE = "nonce"
_LOWER = (1 << 64) - 1
_UPPER = _LOWER << 64
_NAMES = uuid.UUID("1f0e7c52-5f0e-4f3c-9a3b-0f7c2f1f6b7e")


def kept_with_code(nonce: str) -> tuple[str, dict[str, str]]:
    """A nonce as it is stored with a code: in its own column, or among the claims."""
    return (nonce, {}) if len(nonce) <= _MAX_NONCE_COLUMN else ("", {_NONCE: nonce})


def nonce_of(grant: Any) -> str:
    """The nonce stored with a code."""
    claims = json.loads(grant.claims or "{}")
    return str(claims.get(_NONCE) or grant.nonce)


def family_of(code: str) -> uuid.UUID:
    """The family of the refresh tokens that follow from a code."""
    return uuid.uuid5(_NAMES, hashlib.sha256(code.encode()).hexdigest())


def new_id(request: Any) -> str:
    """The id (`jti`) of an identity token that is about to be issued."""
    random, family = uuid.uuid4(), _family(request)
    if family is None:
        return str(random)
    return str(uuid.UUID(int=family.int & _UPPER | random.int & _LOWER))


def _family(request: Any) -> uuid.UUID | None:
    if request.code:
        return family_of(request.code)
    refreshed = getattr(request, "refresh_token_instance", None)
    return refreshed.token_family if refreshed is not None else None


def end_issued(code: str, client: Any) -> int:
    """End all tokens that a client was issued from a code, and tell the workers; how many."""
    return _end_family(family_of(code), client)


def end_if_used(refresh_token: str, client: Any) -> int:
    """End all tokens of a refresh token's family, if it is one that was ended; how many."""
    ended = get_refresh_token_model().objects.filter(
        token_checksum=digest(refresh_token), application=client, revoked__isnull=False
    )
    used = ended.exclude(token_family=None).first()
    return _end_family(used.token_family, client) if used is not None else 0


@transaction.atomic
def _end_family(family: uuid.UUID, client: Any) -> int:
    refresh_tokens = get_refresh_token_model().objects.filter(
        token_family=family, application=client
    )
    access_tokens = get_access_token_model().objects.filter(refresh_token__in=refresh_tokens)
    id_tokens = get_id_token_model().objects.filter(
        jti__range=(uuid.UUID(int=family.int & _UPPER), uuid.UUID(int=family.int | _LOWER)),
        application=client,
    )
    said = list(access_tokens.values_list("token_checksum", flat=True))
    said += [id_token_name(str(jti)) for jti in id_tokens.values_list("jti", flat=True)]
    access_tokens.delete()
    id_tokens.delete()
    refresh_tokens.filter(revoked=None).update(revoked=timezone.now())
    for checksum in said:
        revoke(token=checksum, close=False)
    return len(said)
