"""Secrets the node must be able to read again (an issuer's client secret), sealed in the database.

The key is derived from SECRET_KEY; after a change of it, keys named in SECRET_KEY_FALLBACKS still
open what they sealed, and the next save seals it anew. What cannot be opened counts as not set.
"""

from __future__ import annotations

import base64
import hashlib
import logging

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.utils.encoding import force_bytes

log = logging.getLogger(__name__)


def seal(secret: str) -> str:
    """The text to keep; "" for no secret."""
    return _box().encrypt(secret.encode()).decode() if secret else ""


def unseal(sealed: str) -> str:
    """The secret; "" if there is none, or if no key of ours opens it."""
    if not sealed:
        return ""
    try:
        return _box().decrypt(sealed.encode()).decode()
    except InvalidToken:
        log.error("A sealed secret was sealed with another SECRET_KEY: enter it again.")
        return ""


def _box() -> MultiFernet:
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    hashes = (hashlib.sha256(b"msgnode.sealing:" + force_bytes(key)).digest() for key in keys)
    return MultiFernet([Fernet(base64.urlsafe_b64encode(each)) for each in hashes])
