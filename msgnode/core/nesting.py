"""Bounds how deeply JSON text may be nested. Pure.

The depth at which a JSON decoder fails depends on the call stack, so one part of the node could
accept what the next cannot decode. This bound is safe for all of them.
"""

from __future__ import annotations

import re

MAX_DEPTH = 128
"""Most levels of objects and lists in a message; the message itself is the first."""
LEAST_DEEP = 2 * MAX_DEPTH
"""Text of at most this many bytes cannot be nested too deeply."""

_QUOTE = b'"'
_OTHERS = bytes(set(range(256)) - set(b'"[]{}'))
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_PEELED = 8
_RUN = re.compile(rb"\[+|\]+")


def is_too_deep(text: bytes) -> bool:
    """Whether valid JSON text has more than MAX_DEPTH levels.

    >>> is_too_deep(b"[" * 128 + b"]" * 128), is_too_deep(b"[" * 129 + b"]" * 129)
    (False, True)
    """
    if not _has_many(text):
        return False
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(None, _OTHERS).replace(_QUOTE * 2, b"")
    brackets = b"".join(marks.split(_QUOTE)[::2]).translate(_AS_LISTS)
    for _ in range(_PEELED):  # each round removes all innermost pairs; few messages need more
        brackets = brackets.replace(b"[]", b"")
    if len(brackets) <= 2 * (MAX_DEPTH - _PEELED):
        return False
    depth = 0
    for run in _RUN.findall(brackets):
        depth += len(run) if run[0] == 0x5B else -len(run)
        if depth > MAX_DEPTH - _PEELED:
            return True
    return False


def _has_many(text: bytes) -> bool:
    """Whether more objects and lists begin in the text than levels are allowed.

    It searches from one to the next: most messages have few, and counting every byte is slower.
    """
    left = MAX_DEPTH
    for bracket in (b"{", b"["):
        at = text.find(bracket)
        while at >= 0:
            left -= 1
            if left < 0:
                return True
            at = text.find(bracket, at + 1)
    return False
