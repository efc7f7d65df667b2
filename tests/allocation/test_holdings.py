"""What a session holds, against the plain look at all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgnode.allocation.component import Holdings

WORDS = st.sampled_from(["a", "b", "c", "d", "k1", "k2"])
KEYS = st.sampled_from(["", "k1", "k2", "a"])
STEPS = st.lists(st.tuples(st.booleans(), WORDS, KEYS), max_size=30)


@given(STEPS, st.lists(WORDS, max_size=4))
def test_addresses_are_found_by_themselves_and_by_their_key(
    steps: list[tuple[bool, str, str]], asked: list[str]
) -> None:
    held, plain = Holdings(), {}
    for is_added, address, key in steps:
        if is_added:
            held.add(address, key)
            plain[address] = key
        else:
            held.remove(address)
            plain.pop(address, None)
    assert held.keys == plain
    assert len(held) == len(plain)
    wanted = {a: key for a, key in plain.items() if a in asked or (key and key in asked)}
    assert held.named(asked) == wanted
    assert Holdings(plain).named(asked) == wanted
    for address in tuple(plain):
        held.remove(address)
    assert held._blocks == {}
