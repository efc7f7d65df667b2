"""Last owners are remembered within a bound, and nobody's many push out another's few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgnode.bus.last_owners import LastOwnerCache
from msgnode.core.identity import Identity, Speaker

ALICE, MALLORY = ("https://issuer", "alice"), ("https://issuer", "mallory")


def speaker(subject: tuple[str, str]) -> Speaker:
    return Speaker("id", "runtime://d/r", identity=Identity(issuer=subject[0], subject=subject[1]))


def test_who_has_many_loses_the_oldest_of_them_and_nobody_else_any() -> None:
    owners = LastOwnerCache(100)
    owners.note(["comm://d/of-alice"], ALICE)
    owners.note([f"comm://d/{number}" for number in range(1_000)], MALLORY)
    assert len(owners) == 100
    assert not owners.allow("comm://d/of-alice", speaker(MALLORY))
    assert not owners.allow("comm://d/999", speaker(ALICE))
    assert owners.allow("comm://d/0", speaker(ALICE))


def test_an_address_that_changes_hands_counts_for_its_last_owner() -> None:
    owners = LastOwnerCache(10)
    owners.note(["comm://d/1"], MALLORY)
    owners.note(["comm://d/1"], ALICE)
    assert len(owners) == 1
    assert owners.allow("comm://d/1", speaker(ALICE))
    assert not owners.allow("comm://d/1", speaker(MALLORY))


NOTES = st.tuples(st.integers(0, 4), st.lists(st.integers(0, 30), max_size=12))


@given(st.lists(NOTES, max_size=40))
def test_whatever_is_noted_it_stays_within_the_bound_and_in_even_shares(notes: list) -> None:
    owners = LastOwnerCache(12)
    for subject, numbers in notes:
        owners.note([f"comm://d/{number}" for number in numbers], ("issuer", str(subject)))
        held = list(owners._owners.values())
        assert len(held) <= 12
        assert {each: len(of) for each, of in owners._of.items()} == {
            each: held.count(each) for each in set(held)
        }
        assert owners._most == max((held.count(each) for each in held), default=0)


def test_who_has_most_changes_as_they_come_and_go() -> None:
    owners = LastOwnerCache(4)
    owners.note(["comm://d/a1", "comm://d/a2"], ALICE)
    owners.note(["comm://d/m1", "comm://d/m2"], MALLORY)
    owners.note(["comm://d/m3"], MALLORY)  # now most are his: his oldest goes
    assert owners.allow("comm://d/m1", speaker(ALICE))
    owners.note(["comm://d/a3"], ALICE)  # and now hers
    assert owners.allow("comm://d/a1", speaker(MALLORY))
    for kept, who in (("a2", ALICE), ("a3", ALICE), ("m2", MALLORY), ("m3", MALLORY)):
        assert owners.allow(f"comm://d/{kept}", speaker(who))
        assert not owners.allow(f"comm://d/{kept}", speaker(("https://issuer", "eve")))


def test_who_had_more_in_between_has_as_many_as_another_only_from_then_on() -> None:
    owners = LastOwnerCache(2)
    owners.note(["comm://d/a1"], ALICE)
    owners.note(["comm://d/m1"], MALLORY)
    owners.note(["comm://d/a2"], ALICE)  # too many: hers that was first goes, one is left to each
    owners.note(["comm://d/e1"], ("https://issuer", "eve"))
    assert owners.allow("comm://d/m1", speaker(ALICE))
    assert not owners.allow("comm://d/a2", speaker(MALLORY))


def test_after_all_are_forgotten_it_begins_anew() -> None:
    owners = LastOwnerCache(2)
    owners.note(["comm://d/1", "comm://d/2"], ALICE)
    owners.forget()
    assert len(owners) == 0
    owners.note(["comm://d/3"], ALICE)
    owners.note(["comm://d/4"], MALLORY)
    owners.note(["comm://d/5"], MALLORY)
    assert owners.allow("comm://d/4", speaker(ALICE))
    assert not owners.allow("comm://d/3", speaker(MALLORY))
