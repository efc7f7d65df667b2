"""Base64 as in URLs and tokens: without padding (RFC 4648, section 5)."""

from __future__ import annotations

import base64


def encode(octets: bytes) -> str:
    """The text of these octets.

    >>> encode(b"hyperty://d/1")
    'aHlwZXJ0eTovL2QvMQ'
    """
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def decode(text: str) -> bytes:
    """The octets of a text of either alphabet, padded or not. Raises ValueError.

    >>> decode("aHlwZXJ0eTovL2QvMQ=="), decode("-_8") == decode("+/8")
    (b'hyperty://d/1', True)
    """
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
