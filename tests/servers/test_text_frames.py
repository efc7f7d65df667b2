"""The fast path: every whole text frame once and in order, and nothing that is not one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.servers.text_frames import apply_mask, whole_texts

LIMIT = 1 << 20
KEY = b"\x12\x34\x56\x78"


def frame(payload: bytes, head: int = 0x81) -> bytes:
    """A frame as a client sends it."""
    size = len(payload)
    if size < 126:
        header = struct.pack("!BB", head, 0x80 | size)
    elif size < 65536:
        header = struct.pack("!BBH", head, 0xFE, size)
    else:
        header = struct.pack("!BBQ", head, 0xFF, size)
    return header + KEY + apply_mask(payload, KEY)


texts = st.lists(st.text(max_size=300).map(str.encode), max_size=5)


@given(texts, st.lists(st.integers(0, 2000)))
def test_a_stream_cut_anywhere_gives_the_same_texts(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, sent))
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    received: list[bytes] = []
    rest = b""
    for start, end in zip(places, places[1:], strict=False):
        rest += stream[start:end]
        found, taken, is_plain = whole_texts(rest, LIMIT)
        received += found
        rest = rest[taken:]
        assert is_plain
    assert received == sent
    assert rest == b""


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 100_000])
def test_every_length_encoding_is_read(size: int) -> None:
    stream = frame(b"x" * size)
    assert whole_texts(stream, LIMIT) == ([b"x" * size], len(stream), True)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(frame(b"", 0x88), id="close"),
        pytest.param(frame(b"", 0x89), id="ping"),
        pytest.param(frame(b"{}", 0x82), id="binary"),
        pytest.param(frame(b"{", 0x01), id="first fragment"),
        pytest.param(frame(b"}", 0x80), id="last fragment"),
        pytest.param(frame(b"{}", 0xC1), id="reserved bit"),
        pytest.param(frame(b"\xff\xfe"), id="not UTF-8"),
        pytest.param(b"\x81\x02{}______", id="not masked"),
        pytest.param(b"\x81\x02{}", id="not masked and too short for a mask"),
        pytest.param(b"\x81\xfe\x00\x05" + KEY + b"-----", id="two bytes for a short length"),
        pytest.param(b"\x81\xff" + bytes(7) + b"\x05" + KEY + b"-----", id="eight bytes for one"),
        pytest.param(frame(b"x" * 200)[:20], id="over the limit, not even whole"),
    ],
)
def test_anything_else_is_left_where_it_stands(other: bytes) -> None:
    plain = frame(b"{}")
    assert whole_texts(plain + other + plain, 100) == ([b"{}"], len(plain), False)


@pytest.mark.parametrize("length", range(1, 14))
def test_the_beginning_of_a_text_waits_for_the_rest(length: int) -> None:
    assert whole_texts(frame(b"x" * 70_000)[:length], LIMIT) == ([], 0, True)


def test_a_long_text_that_comes_in_pieces_is_left_where_it_stands() -> None:
    plain = frame(b"{}")
    assert whole_texts(plain + frame(b"x" * 70_000)[:60_000], LIMIT) == ([b"{}"], len(plain), False)
