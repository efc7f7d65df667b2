"""Fast path for unfragmented, masked text frames (RFC 6455, 5.2), as nearly all are. Pure.

The servers' libraries (autobahn, websockets) parse a frame in many calls that allow for streaming,
fragments and compression. Here a read is cut into its texts in one loop; anything else is left to
the library unchanged, so that errors, fragments and control frames are handled as usual.
"""

from __future__ import annotations

try:
    from websockets.speedups import apply_mask  # in C
except ImportError:
    from websockets.utils import apply_mask

_WHOLE_TEXT = 0x81  # FIN, no reserved bit, opcode 1
_MASKED = 0x80
_GATHERED = 64 * 1024
"""Longest text that is assembled here from several reads: each read copies what came before it, so
a longer one is left to the library, which keeps the pieces apart.
"""


def whole_texts(data: bytes, limit: int) -> tuple[list[bytes], int, bool]:
    """The texts of the complete frames at the beginning of `data`.

    Returns:
        The texts, where they end, and whether what follows is the beginning of another one, or
        nothing. It is False for anything else, also for a text that is longer than `limit`, not
        UTF-8, or long and still incomplete.
    """
    texts: list[bytes] = []
    at, available = 0, len(data)
    while available - at >= 6:
        size = data[at + 1] - _MASKED
        if data[at] != _WHOLE_TEXT or size < 0:
            return texts, at, False
        start = at + 6
        if size == 126:
            start = at + 8
            size = data[at + 2] << 8 | data[at + 3]
            is_shortest = size >= 126
        elif size == 127:
            start = at + 14
            size = int.from_bytes(data[at + 2 : at + 10], "big")
            is_shortest = size >= 65536
        else:
            is_shortest = True
        end = start + size
        if start > available:
            break
        if size > limit or not is_shortest:
            return texts, at, False
        if end > available:
            if size > _GATHERED:
                return texts, at, False
            break
        text = apply_mask(data[start:end], data[start - 4 : start])
        if not text.isascii() and not is_utf8(text):
            return texts, at, False
        texts.append(text)
        at = end
    return texts, at, at == available or _may_become_a_text(data[at : at + 2])


def _may_become_a_text(beginning: bytes) -> bool:
    """Whether the first two bytes of a frame, as far as present, are those of a text frame."""
    is_masked = len(beginning) < 2 or beginning[1] >= _MASKED
    return is_masked and beginning[0] == _WHOLE_TEXT


def is_utf8(text: bytes) -> bool:
    """Whether a text is valid UTF-8 as RFC 6455 requires."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
