"""Copies of a frame for others than its sender: without the sender's session token. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

_ESCAPE = re.compile(rb"\\\\|\\u00([2-7][0-9a-fA-F])")
"""Two backslashes, or a character of ASCII as JSON escapes it."""


def without_token(frame: bytes, token: bytes) -> bytes:
    """The frame without a session token, for everybody but the session itself.

    Stubs of the field mark messages with their session URL (`<runtime URL>/<token>`), which opens
    the session to whoever knows it. A token is random, so its text can be cut out anywhere, also
    where characters of it are written as escapes of JSON.
    """
    escaped = b"\\" in frame and b"\\u00" in frame  # one byte is found faster than four
    if not escaped and token not in frame:
        return frame
    if b"/" + token in frame and b"\\/" + token not in frame:  # as stubs write it
        frame = frame.replace(b"/" + token, b"")
    plain = _ESCAPE.sub(_unescaped, frame) if escaped else frame
    if token.lower() not in plain.lower():
        return frame
    return _spellings(token).sub(lambda found: found[1] or b"", frame)


@lru_cache(maxsize=256)
def _spellings(token: bytes) -> re.Pattern[bytes]:
    """A token as JSON may write it, with the slash before it; or two backslashes, which stay."""
    chars = (
        rb"(?:%b|\\u00(?:%02x|%02x))" % (re.escape(bytes([char])), char, bytes([char]).upper()[0])
        for char in token
    )
    return re.compile(rb"(\\\\)|(?:\\?/|%2f|\\u002f)?" + b"".join(chars), re.IGNORECASE)


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 16)]) if found[1] else found[0]
