"""What is remembered of texts stays within its bytes, whatever texts come."""

from __future__ import annotations

import tracemalloc
from sys import getsizeof

from msgnode.core import addresses
from msgnode.core.bounded_cache import BoundedCache

MOST = 100_000


def test_a_result_is_computed_once_and_forgotten_after_long_disuse() -> None:
    asked: list[str] = []

    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    cache = BoundedCache(length, MOST, lambda value: 0)
    for number in range(10_000):
        assert cache["in use"] == 6
        assert cache[f"once {number}"] == len(f"once {number}")
    assert asked.count("in use") == 1
    assert cache["once 9999"] == 9
    assert cache["once 1"] == 6
    assert asked.count("once 9999") == 1
    assert asked.count("once 1") == 2


def test_long_texts_take_no_more_bytes_than_short_ones() -> None:
    cache = BoundedCache(lambda text: text + "!", MOST, len)
    tracemalloc.start()
    try:
        for number in range(200):
            assert cache[f"{number}" + "x" * 10_000].endswith("!")
        assert tracemalloc.get_traced_memory()[0] < 2 * MOST
    finally:
        tracemalloc.stop()
    assert cache["y" * MOST] == "y" * MOST + "!"
    assert "y" * MOST not in cache


def test_names_of_the_longest_addresses_are_remembered_within_their_bytes() -> None:
    for number in range(4_000):
        longest = f"runtime://d/{number}" + f"/{'x' * 15}" * 31
        assert not addresses.fault(longest)
        assert len(addresses.names_of(longest)) == 64
    names = [each for found in addresses._NAMES.values() for each in found]
    assert sum(map(getsizeof, names)) < 33_000_000
    assert len(names) < 64 * 2_000


def test_of_a_text_as_long_as_a_frame_only_what_could_be_held_is_derived() -> None:
    huge = "a:" + "b/" * 500_000
    assert len(list(addresses.ancestors(huge))) == addresses.MAX_PARTS + 1
    assert len(addresses.names_of(huge)) == addresses.MAX_PARTS + 1
    assert addresses.parse(huge).path == huge[2:]
