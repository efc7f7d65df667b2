"""The embedded provider's signing keys: made, published, used, retired, all by the clock.

Rules
- A key is published when it is made and signs from LEAD later, so that caches of the
  JWK set have it before it is used. The first key signs at once.
- The newest key that may sign is used. The previous one stays published until everything it signed
  has expired; then its row may be deleted.
- `replace_now` is for a key that has leaked: the new one signs at once, the others are removed.
- Private keys are encrypted in the database (identity/encryption.py), and never logged or shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, RSAKey

from msgnode.identity.encryption import decrypt, encrypt
from msgnode.models import ProviderKey


class CannotSign(RuntimeError):
    """The private key cannot be opened here; the text says what to do."""


ALGORITHM = "RS256"
BITS = 2048
LIFETIME = timedelta(days=90)
"""For which a key signs; `manage.py provider_key --rotate` ends it sooner."""
LEAD = timedelta(minutes=15)
"""Three times as long as verifiers may cache the JWK set (OIDC_JWKS_MAX_AGE_SECONDS)."""
_LEEWAY = timedelta(minutes=5)


def jwk_set() -> dict[str, Any]:
    """The published keys as a JWK set; makes the first key if there is none."""
    return {"keys": [row.public for row in published(_rows())]}


def signer() -> tuple[str, RSAKey]:
    """The key that signs now, with its `kid`."""
    row = signing(_rows())
    return row.kid, _opened(row.kid, row.sealed)


def sign(claims: Mapping[str, Any]) -> str:
    """A JWT of these claims, signed with the key that signs now."""
    kid, key = signer()
    return jwt.encode({"typ": "JWT", "alg": ALGORITHM, "kid": kid}, dict(claims), key)


def verify(token: str) -> dict[str, Any] | None:
    """The claims of a token that one of the published keys has signed; None of any other text.

    Whether they are valid now is not looked at.
    """
    try:
        published_keys = KeySet([RSAKey.import_key(key) for key in jwk_set()["keys"]])
        return jwt.decode(token, published_keys, [ALGORITHM]).claims
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def signing(rows: Sequence[ProviderKey]) -> ProviderKey:
    """Of keys, oldest first: the one that signs."""
    now = timezone.now()
    ready = [row for row in rows if row.signs_from <= now]
    return ready[-1] if ready else rows[0]


def published(rows: Sequence[ProviderKey], now: datetime | None = None) -> list[ProviderKey]:
    """Of keys, oldest first: those whose tokens may still be met, and those that will sign."""
    now = now or timezone.now()
    keep = timedelta(seconds=settings.PROVIDER["ID_TOKEN_SECONDS"]) + _LEEWAY
    later = [row.signs_from for row in rows[1:]]
    ends = [*(start + keep for start in later), None]
    return [row for row, end in zip(rows, ends, strict=True) if end is None or end > now]


def states(rows: Sequence[ProviderKey]) -> dict[str, str]:
    """Of keys, oldest first: what each is by its `kid`: signs, next, published or over."""
    signs = signing(rows).kid
    known = {row.kid for row in published(rows)}

    def state(row: ProviderKey) -> str:
        if row.kid == signs:
            return "signs"
        if row.signs_from > timezone.now():
            return "next"
        return "published" if row.kid in known else "over"

    return {row.kid: state(row) for row in rows}


@transaction.atomic
def rotate() -> ProviderKey:
    """Publish a new key, and delete those whose time is over."""
    rows = list(ProviderKey.objects.select_for_update())
    made = _make(timezone.now() + (LEAD if rows else timedelta()))
    kept = {row.pk for row in published([*rows, made])}
    ProviderKey.objects.exclude(pk__in=kept).delete()
    return made


@transaction.atomic
def replace_now() -> ProviderKey:
    """A new key that signs at once; everything signed before is refused from now on."""
    ProviderKey.objects.all().delete()
    return _make(timezone.now())


def rotate_if_due() -> ProviderKey | None:
    """What the schedule does: rotate when the newest key is LIFETIME old."""
    newest = _rows()[-1]
    due = newest.signs_from + LIFETIME
    return rotate() if timezone.now() >= due else None


def _rows() -> list[ProviderKey]:
    rows = list(ProviderKey.objects.all())
    if rows:
        return rows
    with transaction.atomic():
        if not ProviderKey.objects.select_for_update().exists():
            _make(timezone.now())
    return list(ProviderKey.objects.all())


def _make(signs_from: datetime) -> ProviderKey:
    private = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    key = RSAKey.import_key(pem)
    kid = key.thumbprint()
    public = {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": ALGORITHM}
    return ProviderKey.objects.create(
        kid=kid, public=public, sealed=encrypt(pem.decode()), signs_from=signs_from
    )


@lru_cache(maxsize=4)
def _opened(kid: str, sealed: str) -> RSAKey:
    pem = decrypt(sealed)
    if not pem:
        raise CannotSign(
            "The provider's signing key was sealed with another key: name that one in "
            "SECRET_KEY_FALLBACKS, or make a new one (manage.py provider_key --replace-now)."
        )
    return RSAKey.import_key(pem)
