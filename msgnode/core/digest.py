"""The digest that is stored in place of a secret."""

from __future__ import annotations

import hashlib


def digest(text: str) -> str:
    """The SHA-256 of a token, an API key or another text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()
