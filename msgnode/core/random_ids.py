"""Random UUIDs (RFC 9562, version 4) without a system call for each.

A system call releases the GIL, and the event loop may then wait for other threads to get it back.
Random bytes are therefore fetched for many at once, from the same source as `uuid` uses.
"""

from __future__ import annotations

import os

_SIZE = 16
_AT_ONCE = 64

_fetched: list[bytes] = []
os.register_at_fork(after_in_child=_fetched.clear)  # else parent and child would share ids

_VERSION_4 = 0x4 << 76 | 0b10 << 62
_RANDOM = (1 << 128) - 1 - (0xF << 76) - (0b11 << 62)


def random_uuid() -> str:
    """A random UUID as text; its 122 random bits are good enough for a secret."""
    try:
        bits = _fetched.pop()  # atomic, so threads may do this concurrently
    except IndexError:
        fresh = os.urandom(_SIZE * _AT_ONCE)
        _fetched.extend(fresh[at : at + _SIZE] for at in range(_SIZE, len(fresh), _SIZE))
        bits = fresh[:_SIZE]
    text = f"{int.from_bytes(bits, 'big') & _RANDOM | _VERSION_4:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
