"""GUIDs: names that follow from a public key and a salt. Pure, but for pauses.

docs/reference/registry.md, section B2:
GUID = base64url, unpadded, of PBKDF2-HMAC-SHA256(key text, salt text, 10,000 rounds, 32 bytes).
Both texts are taken as they are written, the key with its BEGIN and END marks. A library that was
bundled with the field's runtimes ends the first block of a text salt with "1" instead of the number
1 in four bytes; the names it made are in use, and so both variants are derived here. No library
derives that other variant: it takes ten times as long, in Python, and so lets other threads in.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from time import sleep

from msgnode.core import base64url

ROUNDS = 10_000
SCHEME = "user-guid://"
_ROUNDS_AT_ONCE = 250
_PAUSE = 0.0005
"""Seconds in which other threads may run; the interpreter would let them wait ten times as long."""
FORM = re.compile(r"[A-Za-z0-9_-]{43}")


def derive(public_key: str, salt: str) -> str:
    """The GUID of a key and a salt.

    >>> derive("key", "salt")
    'a1YHXfWwpA6xfdFtvgyRBTFWK4wRnFcVL6y1YARnhQw'
    """
    derived = hashlib.pbkdf2_hmac("sha256", public_key.encode(), salt.encode(), ROUNDS)
    return base64url.encode(derived)


def derive_legacy(public_key: str, salt: str) -> str:
    """The GUID of the other variant."""
    start = hmac.new(public_key.encode(), digestmod="sha256")
    block = _round(start, salt.encode() + b"1")
    mixed = int.from_bytes(block)
    for number in range(1, ROUNDS):
        block = _round(start, block)
        mixed ^= int.from_bytes(block)
        if not number % _ROUNDS_AT_ONCE:
            sleep(_PAUSE)
    return base64url.encode(mixed.to_bytes(32))


def is_of(guid: str, public_key: str, salt: str) -> bool:
    """Whether the GUID follows from key and salt, in either variant."""
    return guid == derive(public_key, salt) or guid == derive_legacy(public_key, salt)


def bare(guid: str) -> str:
    """The GUID without its scheme."""
    return guid.removeprefix(SCHEME)


def _round(start: hmac.HMAC, text: bytes) -> bytes:
    step = start.copy()
    step.update(text)
    return step.digest()
