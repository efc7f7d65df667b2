"""Encrypts the secrets in the database that the node must be able to read.

These are issuers' client secrets and the embedded provider's private keys.

The encryption key is derived (HKDF-SHA256) from KEY_ENCRYPTION_KEY, else from SECRET_KEY; keys in
SECRET_KEY_FALLBACKS still decrypt what they encrypted; the next save encrypts it with the current
one, and `manage.py secret_key --encrypt-anew` everything (sealed_secrets). A copy of the database
alone reveals nothing. What cannot be decrypted counts as unset.
"""

from __future__ import annotations

import base64
import logging
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.utils.encoding import force_bytes

log = logging.getLogger(__name__)


def encrypt(secret: str) -> str:
    """Encrypt a secret for storage; "" for no secret."""
    return _box().encrypt(secret.encode()).decode() if secret else ""


def decrypt(sealed: str) -> str:
    """Decrypt a secret; "" if there is none, or no key decrypts it."""
    if not sealed:
        return ""
    try:
        return _box().decrypt(sealed.encode()).decode()
    except InvalidToken:
        log.error("A sealed secret was sealed with another key: enter it again.")
        return ""


def opens(sealed: str, *further: str) -> bool:
    """Whether one of the node's keys, or one of `further`, decrypts it."""
    try:
        _box(*further).decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True


def is_current(sealed: str) -> bool:
    """Whether it was encrypted with the key that encrypts now."""
    current = settings.KEY_ENCRYPTION_KEY or settings.SECRET_KEY
    try:
        _derived(force_bytes(current)).decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True


def rotated(sealed: str) -> str:
    """The same secret, encrypted with the key that encrypts now. Raises InvalidToken."""
    return _box().rotate(sealed.encode()).decode()


def _box(*further: str) -> MultiFernet:
    named = (settings.KEY_ENCRYPTION_KEY, settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([_derived(force_bytes(key)) for key in (*named, *further) if key])


@lru_cache(maxsize=16)
def _derived(key: bytes) -> Fernet:
    kdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"msgnode.sealing")
    return Fernet(base64.urlsafe_b64encode(kdf.derive(key)))
