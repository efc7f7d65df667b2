"""Fast path for unfragmented, masked text frames (RFC 6455, 5.2), as nearly all are. Pure.

The servers' libraries (autobahn, websockets) read a frame in many calls that foresee streaming,
fragments and compression. Here a read is cut into its texts in one loop; whatever is not plain is
left to the library as it is, so that every fault, fragment and control frame is treated as ever.
"""

from __future__ import annotations

try:
    from websockets.speedups import apply_mask  # in C
except ImportError:
    from websockets.utils import apply_mask

_WHOLE_TEXT = 0x81  # FIN, no reserved bit, opcode 1
_MASKED = 0x80
_GATHERED = 64 * 1024
"""Longest text whose pieces are put together here: each piece copies what came before it, so a long
one sent in small pieces is left to the library, which keeps them apart."""


def whole_texts(data: bytes, limit: int) -> tuple[list[bytes], int, bool]:
    """The texts of the whole frames that `data` begins with.

    Returns:
        The texts, where they end, and whether what follows is the beginning of another (or
        nothing): False if it is something else. A text longer than `limit`, not in UTF-8, or long
        and still incomplete is something else.
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


def frame_size(data: bytes, at: int) -> int | None:
    """The bytes the frame that begins there has with its header, None while that cannot be told."""
    left = len(data) - at
    if left < 2:
        return None
    size = data[at + 1] & 0x7F
    header = 2 + (4 if data[at + 1] & _MASKED else 0)
    if size == 126:
        return header + 2 + (data[at + 2] << 8 | data[at + 3]) if left >= 4 else None
    if size == 127:
        return header + 8 + int.from_bytes(data[at + 2 : at + 10], "big") if left >= 10 else None
    return header + size


def is_overlong(data: bytes, at: int) -> bool:
    """Whether the length of a frame, whose size is known, is written in more bytes than it needs.

    RFC 6455 forbids that (5.2).
    """
    size = data[at + 1] & 0x7F
    if size == 126:
        return (data[at + 2] << 8 | data[at + 3]) < 126
    return size == 127 and int.from_bytes(data[at + 2 : at + 10], "big") < 65536


def _may_become_a_text(beginning: bytes) -> bool:
    """Whether the first two bytes of a frame, as far as they are there, are those of a text."""
    is_masked = len(beginning) < 2 or beginning[1] >= _MASKED
    return is_masked and beginning[0] == _WHOLE_TEXT


def is_utf8(text: bytes) -> bool:
    """Whether a text is what RFC 6455 asks of one."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
