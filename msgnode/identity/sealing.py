"""Secrets that have to be read again, encrypted where they are kept.

The key is derived (HKDF-SHA256) from KEY_ENCRYPTION_KEY, else from SECRET_KEY; what was sealed
under one of SECRET_KEY_FALLBACKS can still be opened, so that the secret can be changed. A copy of
the database alone opens nothing.
"""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class CannotOpen(ValueError):
    """It was sealed with a key that is not known here."""


def seal(secret: bytes) -> str:
    return _fernet().encrypt(secret).decode()


def unseal(sealed: str) -> bytes:
    """Raises CannotOpen."""
    try:
        return _fernet().decrypt(sealed.encode())
    except InvalidToken:
        raise CannotOpen(
            "sealed under another key: name the old one in SECRET_KEY_FALLBACKS "
            "or set KEY_ENCRYPTION_KEY as it was"
        ) from None


def _fernet() -> MultiFernet:
    named = (settings.KEY_ENCRYPTION_KEY, settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([_derived(text) for text in named if text])


def _derived(text: str) -> Fernet:
    kdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"msgnode.sealing")
    return Fernet(base64.urlsafe_b64encode(kdf.derive(text.encode())))
